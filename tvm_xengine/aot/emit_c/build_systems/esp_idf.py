"""A package as an ESP-IDF component: docs.espressif.com, "Build System" and "Component Files"."""

from __future__ import annotations

from tvm_xengine.aot.emit_c.build_systems.library_facts import SOURCE_OPTIONS, VERSION, summary
from tvm_xengine.aot.package.contents import Package, library_sources


def idf_component(package: Package) -> str:
    """The text of ``CMakeLists.txt``."""
    sources = " ".join(f'"{source}"' for source in library_sources(package))
    return f"""\
idf_component_register(
  SRCS {sources}
  INCLUDE_DIRS ".")
target_compile_options(${{COMPONENT_LIB}} PRIVATE {" ".join(SOURCE_OPTIONS)})
target_link_libraries(${{COMPONENT_LIB}} PUBLIC m)
"""


def idf_manifest(package: Package) -> str:
    """The text of ``idf_component.yml``."""
    return f"""\
version: "{VERSION}"
description: "{summary(package)}"
"""
