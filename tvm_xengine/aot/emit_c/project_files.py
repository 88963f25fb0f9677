"""Build files and README of a package."""

from __future__ import annotations

from tvm_xengine.aot.emit_c.driver import (
    eval_prototype,
    guard_protects_state,
    init_prototype,
    train_prototype,
)
from tvm_xengine.aot.package.code_size import CodeSize, compile_flags
from tvm_xengine.aot.package.contents import Package


def library_sources(package: Package) -> list[str]:
    """The files that an application compiles or links."""
    name = package.name
    kernels = f"{name}_kernels.c" if package.backend.value == "c" else f"{name}_kernels.o"
    return [f"{name}.c", kernels, f"{name}_data.c"]


def cmake_lists(package: Package) -> str:
    """The text of ``CMakeLists.txt``."""
    name = package.name
    sources = " ".join(library_sources(package))
    return f"""\
cmake_minimum_required(VERSION 3.13)
project({name} C)
add_library({name} STATIC {sources})
target_include_directories({name} PUBLIC ${{CMAKE_CURRENT_SOURCE_DIR}})
target_compile_features({name} PUBLIC c_std_11)
target_compile_options({name} PRIVATE -fno-strict-aliasing)
target_link_libraries({name} PUBLIC m)
add_executable({name}_selftest EXCLUDE_FROM_ALL {name}_selftest.c)
target_link_libraries({name}_selftest PRIVATE {name})
"""


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


def readme(package: Package, keep_all_bytes: int, code: CodeSize | None) -> str:
    """The text of the package's README.md."""
    name, macro = package.name, package.macro
    rows = "\n".join(
        f"| {region} | {size} | {package.kept_bytes[region]} |"
        for region, size in package.regions.items()
    )
    memory = "\n".join(
        f"static _Alignas({package.alignment_bytes}) uint8_t {region}[{macro}_{region.upper()}_BYTES];"
        for region in package.regions
    )
    init = ", ".join(f"{region}, sizeof {region}" for region in package.regions)
    if code is None:
        built = f"Code and stack were not measured: {package.target.compiler} was not installed."
    else:
        built = f"Code: {code.text_bytes} bytes with `{package.target.compiler} {code.flags}`."
    if code is not None and code.stack_bytes is not None:
        built += f" Stack: at most {code.stack_bytes} bytes, the C library's functions on top."
    guard = (
        "the state is then untouched"
        if guard_protects_state(package.train)
        else "some of the state is then updated already: load a checkpoint"
    )
    rounding = (
        ""
        if package.storage_error is None
        else f"""
Tensors whose type the plan gives as float16 or bfloat16 are kept in it; kernels compute in float32. In the
self-test that changes a loss by at most {package.storage_error:.1e} of one plus its size.
"""
    )
    return f"""\
# {name}

A training step as plain C for {package.target.name}, made by tvm-xengine. It needs a C11 compiler and the
functions of `math.h`: no runtime, no heap, no files, no operating system.

| region | bytes | of these state |
|---|---|---|
{rows}

Constants and initial state: {package.flash_bytes + package.state_bytes} bytes of flash at most. Keeping every
tensor would take {keep_all_bytes} bytes. {built}
{rounding}
```c
#include "{name}.h"

{memory}
{name}_ctx ctx;

{name}_init(&ctx, {init}, {macro}_PLAN_HASH);
{name}_state_reset(&ctx);      /* or {name}_checkpoint_load */
```

    {init_prototype(package)};
    {train_prototype(package)};
    {eval_prototype(package)};

Batches are read where they are and must lie outside the regions. The first `..._KEPT_BYTES` of a
region hold the state; the rest may be used for anything between calls. A
step whose input or loss is not finite returns `{macro}_ENAN`; {guard}. A label or index that is out of
its range returns `{macro}_ERANGE`. `-D{macro}_NAN_GUARD=0` and `-D{macro}_RANGE_GUARD=0` switch this off.

Compile with `-fno-strict-aliasing`, because one byte of an arena holds values of several types one
after the other, and without `-ffast-math`. The self-test (`{name}_selftest.c`) runs seeded batches and
compares the losses; `CMakeLists.txt` and `{name}.mk` build it.

A checkpoint is a header of 24 bytes (magic, version, plan hash, size, CRC-32) and the state. One of
another plan is refused. The layout of the state is in `{name}_plan.json`.
"""
