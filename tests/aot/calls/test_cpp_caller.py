"""A caller in C++ gets every code that a package has, with its sentence, and keeps its state."""

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.aot.examples import export, need_tools, tiny_mlp
from tests.aot.test_package import SANITIZED
from tvm_xengine.aot.entries import Entry
from tvm_xengine.aot.export import ExportReport
from tvm_xengine.aot.package.checkpoint_file import Checkpoint, encoded, hash_of
from tvm_xengine.aot.package.code_size import compile_flags
from tvm_xengine.aot.package.contents import library_sources

TRAINED = ("fc2_weight", "fc2_bias")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> ExportReport:
    need_tools("host")
    return export(
        *(tiny_mlp(), tmp_path_factory.mktemp("codes") / "tiny"),
        optimizer="momentum",
        entries=[entry.value for entry in Entry],
        trainable=TRAINED,
    )


def checkpoints(report: ExportReport) -> dict[str, bytes]:
    """One that is sound, and others each of which is refused for one reason."""
    package, random = report.package, np.random.default_rng(0)
    tensors: dict[str, np.ndarray] = {
        one.saved_name: random.normal(size=one.place.shape).astype("float32")
        for one in package.state
    }
    tensors["setting/lr"] = np.array(0.125, "float32")
    good = Checkpoint(tensors, origin=package.origin, frozen=hash_of(package.frozen_values))
    sound = encoded(good)
    first, frozen = package.state[0], next(iter(package.frozen))

    def changed(**others: np.ndarray) -> bytes:
        return encoded(replace(good, tensors={**tensors, **others}))

    lacking = {name: value for name, value in tensors.items() if name != first.saved_name}
    longer = np.zeros((*first.place.shape, 1), "float32")
    other_value = package.constants[package.frozen[frozen]] + np.float32(1)
    return {
        "sound": sound,
        "foreign": b"ABCD" + sound[4:],
        "damaged": sound[:-9] + bytes([sound[-9] ^ 1]) + sound[-8:],
        "lacking": encoded(replace(good, tensors=lacking)),
        "other_shape": changed(**{first.saved_name: longer}),
        "other_frozen": changed(**{frozen: other_value}),
        "negative_rate": changed(**{"setting/lr": np.array(-0.5, "float32")}),
        "infinite_rate": changed(**{"setting/lr": np.array(np.inf, "float32")}),
    }


@pytest.mark.slow
@pytest.mark.parametrize("compilers", [("gcc", "g++"), ("clang", "clang++")], ids=" ".join)
def test_a_caller_in_cpp_meets_every_code(
    compilers: tuple[str, str], report: ExportReport, tmp_path: Path
) -> None:
    if missing := [one for one in compilers if shutil.which(one) is None]:
        pytest.skip(f"needs the Debian packages {missing}")
    arrays = "\n".join(
        f"static const unsigned char {name}[] = {{{', '.join(map(str, content))}}};"
        for name, content in checkpoints(report).items()
    )
    source = Path(__file__).with_name("every_code.cpp").read_text(encoding="utf-8")
    (tmp_path / "main.cpp").write_text(source.replace("CHECKPOINTS\n", f"{arrays}\n"))
    package, directory = report.package, report.directory
    flags = [*compile_flags(package.target, package.optimize), *SANITIZED, f"-I{directory}"]
    objects = []
    for file in library_sources(package):
        objects.append(str(tmp_path / f"{file}.o"))
        command = [compilers[0], *flags, "-c", str(directory / file), "-o", objects[-1]]
        subprocess.run(command, check=True)
    flags = ["-std=c++17", "-pedantic", *SANITIZED, f"-I{directory}"]
    program = tmp_path / "program"
    subprocess.run(
        [compilers[1], *flags, str(tmp_path / "main.cpp"), *objects, "-lm", "-o", str(program)],
        check=True,
    )
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    said = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
    header = (directory / "tiny_mlp.h").read_text(encoding="utf-8")
    assert said == dict(
        re.findall(r"^  TINY_MLP_(\w+) = -?\d+,? /\* (.*) \*/$", header, re.MULTILINE)
    )
    of = [line.removeprefix("of ") for line in done.stdout.splitlines() if line.startswith("of ")]
    frozen = next(iter(package.frozen))
    assert of == [package.state[0].saved_name, frozen, "setting/lr"]
