"""Packages for build systems: with CMake itself, else by what their documentation asks for."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tvm_xengine as xe
from tests.aot.examples import export, need_tools, tiny_mlp
from tests.aot.test_package import SANITIZED
from tvm_xengine.aot.check.emulation import build_program, run_program, selftest_build
from tvm_xengine.aot.export import ExportReport
from tvm_xengine.aot.package.layout import LAYOUTS, layout_called
from tvm_xengine.commands.arguments.names import LAYOUT_NAMES
from tvm_xengine.errors import ExportError

_MAIN = """\
#include "tiny_mlp.h"
int main(void) {
  return tiny_mlp_status_text(0) == 0 || tiny_mlp_train_step(0, 0, 0, 0, 0) == 0;
}
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ExportReport]:
    """A package of each layout."""
    need_tools("host")
    folder = tmp_path_factory.mktemp("layouts")
    return {name: export(tiny_mlp(), folder / name, layout=name) for name in LAYOUTS}


def test_options_and_layouts_have_the_same_names() -> None:
    assert tuple(LAYOUTS) == LAYOUT_NAMES


def test_layout_and_size_are_chosen_in_python_as_on_the_command_line(tmp_path: Path) -> None:
    need_tools("host")
    training = xe.training_step("mlp", batch_size=2, loss="cross_entropy", optimizer="sgd")

    def exported(**chosen: str) -> ExportReport:
        folder = tmp_path / "out"
        return xe.export_for_target(training, folder, regions={"sram": "4MiB"}, **chosen)

    for wrong in ({"layout": "keil"}, {"optimize": "both"}, {"objective": "speed"}):
        (name,) = wrong
        with pytest.raises((ExportError, ValueError), match=f"unknown {name} .*expected one of"):
            exported(**wrong)
    report = exported(layout="arduino", optimize="size")
    assert (report.directory / "library.properties").is_file()
    assert report.code is not None
    assert "-Os" in report.code.flags


@pytest.mark.parametrize("name", [n for n in LAYOUTS if n != "cmake"])
def test_kernels_in_an_object_file_are_refused(name: str) -> None:
    with pytest.raises(ExportError, match="--backend c"):
        layout_called(name, has_objects=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYOUTS)
def test_the_self_test_passes_in_every_layout(
    name: str, packages: dict[str, ExportReport], tmp_path: Path
) -> None:
    report = packages[name]
    build = selftest_build(report.directory, report.package, *SANITIZED)
    build_program(report.directory, report.package, build, tmp_path / "selftest")
    assert run_program(tmp_path / "selftest", report.package.target).returncode == 0


def cmake(source: Path, build: Path, *options: str) -> None:
    """Configure and build a project."""
    if shutil.which("cmake") is None:
        pytest.skip("needs the Debian package cmake")
    for command in (
        ["cmake", "-S", str(source), "-B", str(build), "-Werror=dev", *options],
        ["cmake", "--build", str(build)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def application(folder: Path, library: str) -> Path:
    """A CMake project that links the package, found as `library` says."""
    folder.mkdir()
    (folder / "main.c").write_text(_MAIN)
    (folder / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(application C)\n"
        f"{library}\nadd_executable(main main.c)\n"
        "target_link_libraries(main PRIVATE tiny_mlp::tiny_mlp)\n"
    )
    return folder


@pytest.fixture(scope="module")
def for_cmake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need_tools("host")
    folder = tmp_path_factory.mktemp("cmake") / "package"
    return export(tiny_mlp(), folder).directory


@pytest.mark.slow
def test_a_project_of_cmake_adds_the_package_and_its_self_test_passes(
    for_cmake: Path, tmp_path: Path
) -> None:
    added = application(tmp_path / "application", f"add_subdirectory({for_cmake} package)")
    cmake(added, tmp_path / "build")
    subprocess.run([str(tmp_path / "build" / "main")], check=True)
    build = ["cmake", "--build", str(tmp_path / "build"), "--target", "tiny_mlp_selftest"]
    subprocess.run(build, check=True, capture_output=True)
    subprocess.run([str(tmp_path / "build" / "package" / "tiny_mlp_selftest")], check=True)


@pytest.mark.slow
def test_a_project_of_cmake_finds_the_package_once_it_is_installed(
    for_cmake: Path, tmp_path: Path
) -> None:
    prefix = tmp_path / "prefix"
    cmake(for_cmake, tmp_path / "package", f"-DCMAKE_INSTALL_PREFIX={prefix}")
    subprocess.run(
        ["cmake", "--install", str(tmp_path / "package")], check=True, capture_output=True
    )
    found = application(tmp_path / "application", "find_package(tiny_mlp 3 CONFIG REQUIRED)")
    cmake(found, tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    subprocess.run([str(tmp_path / "build" / "main")], check=True)


# What the documentation of Zephyr ("zephyr_*" and "zephyr_library_*" of its CMake extensions) and of
# ESP-IDF ("idf_component_register") says that these commands do, in terms of CMake's own.
_ZEPHYR = """
set(CONFIG_TINY_MLP y)
function(zephyr_include_directories)
  target_include_directories(main PRIVATE ${ARGN})
endfunction()
macro(zephyr_library_named name)
  set(ZEPHYR_CURRENT_LIBRARY ${name})
  add_library(${name} STATIC)
  target_link_libraries(main PRIVATE ${name} m)
endmacro()
function(zephyr_library_sources)
  target_sources(${ZEPHYR_CURRENT_LIBRARY} PRIVATE ${ARGN})
endfunction()
function(zephyr_library_compile_options)
  target_compile_options(${ZEPHYR_CURRENT_LIBRARY} PRIVATE ${ARGN})
endfunction()
"""
_IDF = """
macro(idf_component_register)
  cmake_parse_arguments(ARG "" "" "SRCS;INCLUDE_DIRS" ${ARGN})
  set(COMPONENT_LIB component)
  add_library(component STATIC ${ARG_SRCS})
  target_include_directories(component PUBLIC ${ARG_INCLUDE_DIRS})
  target_link_libraries(main PRIVATE component)
endmacro()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "commands", "folder"), [("zephyr", _ZEPHYR, "zephyr"), ("esp-idf", _IDF, "")]
)
def test_a_module_builds_by_the_documented_commands_of_its_system(
    name: str, commands: str, folder: str, packages: dict[str, ExportReport], tmp_path: Path
) -> None:
    module = packages[name].directory / folder
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(application C)\n"
        f"add_executable(main main.c)\n{commands}\nadd_subdirectory({module} module)\n"
    )
    (tmp_path / "main.c").write_text(_MAIN)
    cmake(tmp_path, tmp_path / "build")
    subprocess.run([str(tmp_path / "build" / "main")], check=True)


@pytest.mark.slow
def test_a_zephyr_module_has_the_files_that_its_manifest_names(
    packages: dict[str, ExportReport],
) -> None:
    root = packages["zephyr"].directory
    manifest = (root / "zephyr" / "module.yml").read_text()
    named = re.fullmatch(r"name: tiny_mlp\nbuild:\n  cmake: (\S+)\n  kconfig: (\S+)\n", manifest)
    assert named is not None
    assert (root / named[1] / "CMakeLists.txt").is_file()
    kconfig = (root / named[2]).read_text()
    assert re.match(r'config TINY_MLP\n\tbool "[^"]+"\n', kconfig)
    assert "if(CONFIG_TINY_MLP)" in (root / "zephyr" / "CMakeLists.txt").read_text()


@pytest.mark.slow
def test_an_arduino_library_has_the_fields_of_the_specification(
    packages: dict[str, ExportReport],
) -> None:
    root = packages["arduino"].directory
    lines = (root / "library.properties").read_text().splitlines()
    fields = dict(line.split("=", 1) for line in lines)
    required = "name version author maintainer sentence paragraph category url architectures"
    assert set(required.split()) <= set(fields)
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9 _.\-]{0,62}", fields["name"])
    assert re.fullmatch(r"\d+\.\d+\.\d+", fields["version"])
    assert fields["category"] == "Data Processing"  # one of the categories of the specification
    assert (root / "src" / fields["includes"]).is_file()
    # What lies in src is compiled, for which nobody can give options.
    compiled = sorted(path.name for path in root.rglob("*.c") if "src" in path.parts)
    assert compiled == ["tiny_mlp.c", "tiny_mlp_data.c", "tiny_mlp_kernels.c"]
    for path in (root / "src").glob("*.c"):
        command = ["gcc", "-O3", "-mfma", "-Wall", "-Werror", "-S", "-o", "-", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "vfmadd" not in done.stdout


@pytest.mark.slow
def test_a_platformio_library_has_a_manifest_of_its_schema(
    packages: dict[str, ExportReport], tmp_path: Path
) -> None:
    root = packages["platformio"].directory
    manifest = json.loads((root / "library.json").read_text())
    assert {"name", "version", "description", "headers", "frameworks", "platforms"} <= set(manifest)
    assert (root / "src" / manifest["headers"]).is_file()
    if importlib.util.find_spec("platformio") is None:
        pytest.skip("needs the Python package platformio")
    command = [
        sys.executable,
        "-m",
        "platformio",
        "pkg",
        "pack",
        "-o",
        str(tmp_path / "library.tar.gz"),
        str(root),
    ]
    subprocess.run(command, check=True, capture_output=True)
