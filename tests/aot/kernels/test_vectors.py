"""Vectors of Helium reach memory in the order of the C code, whatever its compiler does."""

import re
from pathlib import Path

import pytest

from tests.aot.examples import need_tools
from tvm_xengine.aot.check.emulation import compile_program, run_program
from tvm_xengine.aot.emit_c.vectors.functions import VECTOR_FUNCTIONS
from tvm_xengine.aot.targets import embedded_target

IN_C = Path(__file__).parent / "stored_vectors.c"
SQUARES = (1, 9, 1, 25, 2.25, 49, 4, 16, 25, 121, 9, 169, 12.25, 225, 16, 64)


def printed(folder: Path, target_name: str, functions: str) -> list[int]:
    target = embedded_target(target_name)
    (folder / "vectors.h").write_text(functions)
    flags = [*target.flags, "-std=c11", "-O2", f"-I{folder}"]
    flags += ["-DXE_SEMIHOSTING_FILES"] * (target_name != "host")
    compile_program(target, [IN_C], flags, folder / "program")
    return [int(word) for word in run_program(folder / "program", target).stdout.split()]


@pytest.mark.parametrize("target", ["host", "cortex-m55"])
def test_what_a_vector_overwrites_is_read_before(target: str, tmp_path: Path) -> None:
    need_tools(target)
    assert printed(tmp_path, target, "\n".join(VECTOR_FUNCTIONS.values())) == [
        4 * square for square in SQUARES
    ]


def test_only_load_and_store_know_of_memory_and_use_no_intrinsic() -> None:
    for name, text in VECTOR_FUNCTIONS.items():
        moves = name in ("xe_f32x4_load", "xe_f32x4_store")
        assert ("memcpy" in text) is moves, name
        assert ("*" in text.split("{")[0]) is moves, name
        assert not re.search(r"\bv(ld|st)\w+\(", text), name
