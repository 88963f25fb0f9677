"""Vectors of Helium reach memory in the order of the C code, whatever its compiler does."""

import re
from pathlib import Path

import pytest

from tests.aot.examples import need_tools
from tvm_xengine.aot.check.emulation import compile_program, run_program
from tvm_xengine.aot.emit_c.math_functions import helper_definitions
from tvm_xengine.aot.emit_c.vectors.bytes_apart import BYTE_FUNCTIONS
from tvm_xengine.aot.emit_c.vectors.functions import VECTOR, VECTOR_FUNCTIONS
from tvm_xengine.aot.targets import embedded_target

SQUARES = (1, 9, 1, 25, 2.25, 49, 4, 16, 25, 121, 9, 169, 12.25, 225, 16, 64)


def printed(folder: Path, target_name: str, program: str, *flags: str) -> list[int]:
    target = embedded_target(target_name)
    functions = helper_definitions({*VECTOR_FUNCTIONS, *BYTE_FUNCTIONS})
    (folder / "vectors.h").write_text("\n".join(functions))
    given = [*target.flags, "-std=c11", "-O2", f"-I{folder}", *flags]
    given += ["-DXE_SEMIHOSTING_FILES"] * (target_name != "host")
    compile_program(target, [Path(__file__).parent / program], given, folder / "program")
    return [int(word) for word in run_program(folder / "program", target).stdout.split()]


@pytest.mark.parametrize("target", ["host", "cortex-m55"])
def test_what_a_vector_overwrites_is_read_before(target: str, tmp_path: Path) -> None:
    need_tools(target)
    assert printed(tmp_path, target, "stored_vectors.c") == [4 * square for square in SQUARES]


@pytest.mark.parametrize("level", ["-Os", "-O2", "-O3"])
@pytest.mark.parametrize("program", ["stored_vectors.c", "copied_bytes.c"])
def test_bytes_are_moved_as_plain_c_moves_them(program: str, level: str, tmp_path: Path) -> None:
    need_tools("cortex-m55")
    there = printed(tmp_path, "cortex-m55", program, "-DBYTES", level)
    assert there == printed(tmp_path, "host", program, "-DBYTES", level)


def test_only_load_and_store_know_of_memory_and_use_no_intrinsic_for_words() -> None:
    words = {f"{vector}_{name}" for vector in VECTOR.values() for name in ("load", "store")}
    for name, text in VECTOR_FUNCTIONS.items():
        moves = name in words
        assert ("memcpy" in text) is moves, name
        if "bytes" in name:
            # Bytes are no words that C could move; some lanes of a vector must not be stored.
            assert not re.search(r"\bv(ld|st)1\w+\(|_[pz]_", text), name
            continue
        assert ("*" in text.split("{")[0]) is moves, name
        assert not re.search(r"\bv(ld|st)\w+\(", text), name
