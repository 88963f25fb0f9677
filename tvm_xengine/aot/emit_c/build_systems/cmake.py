"""A package for CMake, and for make."""

from __future__ import annotations

from tvm_xengine.aot.emit_c.build_systems.library_facts import SOURCE_OPTIONS, VERSION
from tvm_xengine.aot.package.code_size import compile_flags
from tvm_xengine.aot.package.contents import Package, library_sources


def cmake_lists(package: Package) -> str:
    """The text of ``CMakeLists.txt``: a library to add as a subdirectory, or to install."""
    name = package.name
    return f"""\
cmake_minimum_required(VERSION 3.13)
project({name} VERSION {VERSION} LANGUAGES C)
include(GNUInstallDirs)
add_library({name} STATIC {" ".join(library_sources(package))})
add_library({name}::{name} ALIAS {name})
target_include_directories({name} PUBLIC
  $<BUILD_INTERFACE:${{CMAKE_CURRENT_SOURCE_DIR}}> $<INSTALL_INTERFACE:${{CMAKE_INSTALL_INCLUDEDIR}}>)
target_compile_features({name} PUBLIC c_std_11)
target_compile_options({name} PRIVATE {" ".join(SOURCE_OPTIONS)})
target_link_libraries({name} PUBLIC m)
add_executable({name}_selftest EXCLUDE_FROM_ALL {name}_selftest.c)
target_link_libraries({name}_selftest PRIVATE {name})

set({name}_PACKAGE ${{CMAKE_INSTALL_LIBDIR}}/cmake/{name})
install(TARGETS {name} EXPORT {name}-targets ARCHIVE DESTINATION ${{CMAKE_INSTALL_LIBDIR}})
install(FILES {name}.h DESTINATION ${{CMAKE_INSTALL_INCLUDEDIR}})
install(EXPORT {name}-targets NAMESPACE {name}:: DESTINATION ${{{name}_PACKAGE}})
install(FILES {name}-config.cmake DESTINATION ${{{name}_PACKAGE}})
include(CMakePackageConfigHelpers)
write_basic_package_version_file({name}-config-version.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${{CMAKE_CURRENT_BINARY_DIR}}/{name}-config-version.cmake DESTINATION ${{{name}_PACKAGE}})
"""


def cmake_config(package: Package) -> str:
    """The text of ``<name>-config.cmake``, which ``find_package`` reads once it is installed."""
    return f'include("${{CMAKE_CURRENT_LIST_DIR}}/{package.name}-targets.cmake")\n'


def make_fragment(package: Package) -> str:
    """The text of ``<name>.mk``, to be included by a Makefile."""
    name, macro = package.name, package.macro
    flags = " ".join(compile_flags(package.target, package.optimize))
    return f"""\
# Include this file; then add $({macro}_OBJECTS) to what you link, and -lm.
{macro}_DIR := $(dir $(lastword $(MAKEFILE_LIST)))
{macro}_CC ?= {package.target.compiler}
{macro}_CFLAGS ?= {flags}
{macro}_SOURCES := $(addprefix $({macro}_DIR),{" ".join(library_sources(package))})
{macro}_COMPILED := $(patsubst %.c,%.o,$(filter %.c,$({macro}_SOURCES)))
{macro}_OBJECTS := $({macro}_COMPILED) $(filter %.o,$({macro}_SOURCES))

$({macro}_COMPILED): %.o: %.c
\t$({macro}_CC) $({macro}_CFLAGS) -I$({macro}_DIR) -c $< -o $@

$({macro}_DIR){name}_selftest: $({macro}_DIR){name}_selftest.c $({macro}_OBJECTS)
\t$({macro}_CC) $({macro}_CFLAGS) -I$({macro}_DIR) $^ -o $@ -lm
"""
