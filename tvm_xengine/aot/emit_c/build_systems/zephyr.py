"""A package as a Zephyr module: docs.zephyrproject.org, "Modules (External projects)"."""

from __future__ import annotations

from tvm_xengine.aot.emit_c.build_systems.library_facts import SOURCE_OPTIONS, summary
from tvm_xengine.aot.package.contents import Package, library_sources


def module_yml(package: Package) -> str:
    """The text of ``zephyr/module.yml``."""
    return f"""\
name: {package.name}
build:
  cmake: zephyr
  kconfig: zephyr/Kconfig
"""


def module_cmake(package: Package) -> str:
    """The text of ``zephyr/CMakeLists.txt``."""
    sources = "\n".join(
        f"    ${{CMAKE_CURRENT_LIST_DIR}}/../{source}" for source in library_sources(package)
    )
    return f"""\
if(CONFIG_{package.macro})
  zephyr_include_directories(${{CMAKE_CURRENT_LIST_DIR}}/..)
  zephyr_library_named({package.name})
  zephyr_library_sources(
{sources})
  zephyr_library_compile_options({" ".join(SOURCE_OPTIONS)})
endif()
"""


def module_kconfig(package: Package) -> str:
    """The text of ``zephyr/Kconfig``."""
    return f"""\
config {package.macro}
\tbool "{summary(package)}"
\tselect REQUIRES_FULL_LIBC
\thelp
\t  Made by tvm-xengine for {package.target.name}. Takes the functions of math.h.
"""
