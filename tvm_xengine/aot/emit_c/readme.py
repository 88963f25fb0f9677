"""The README of a package."""

from __future__ import annotations

from tvm_xengine.aot.emit_c.prototypes import arguments, prototype
from tvm_xengine.aot.package.code_size import CodeSize
from tvm_xengine.aot.package.contents import Package


def readme(package: Package, keep_all_bytes: int | None, code: CodeSize | None) -> str:
    """The text of the package's README.md."""
    name = package.name
    rows = "\n".join(
        f"| {region} | {size} | {package.kept_bytes[region]} |"
        for region, size in package.regions.items()
    )
    keep_all = (
        ""
        if keep_all_bytes is None
        else f" Keeping every tensor would take {keep_all_bytes} bytes."
    )
    return f"""\
# {name}

Plain C for {package.target.name}, made by tvm-xengine. It needs a C11 compiler and the functions of
`math.h`: no runtime, no heap, no files, no operating system.

| region | bytes | of these state |
|---|---|---|
{rows}

Constants and initial state: {package.flash_bytes + package.state_bytes} bytes of flash at most.{keep_all}
{_built(package, code)}
{_rounding(package)}
{_program(package)}

{_functions_table(package)}
`{name}.h` says of every function what it takes, what its arrays hold, and what it returns, and has their
shapes, sizes and ranges as macros. Batches are read where they are and must lie outside the regions. The
first `..._KEPT_BYTES` of a region hold the state; the rest may be used for anything between calls. NaN,
infinity and labels out of range are refused before they reach the state, unless macros switch that off.
{_accumulation(package)}
Compile with `-fno-strict-aliasing`, because one byte of an arena holds values of several types one
after the other, and without `-ffast-math`. Functions that are not called are left out by
`-ffunction-sections -Wl,--gc-sections`. The self-test, `{package.layout.test(name)}_selftest.c`, runs
seeded batches and compares the losses.

A checkpoint holds tensors by name, so packages of the same model share it whatever their plan, batch
size or optimizer. `{name}_slots_save` and `{name}_slots_load` keep checkpoints in two or more slots, of
which one is always whole. On a computer `tvm-xengine export-state` converts them.
"""


def _program(package: Package) -> str:
    """A program that calls every entry point once."""
    name, macro = package.name, package.macro
    memory = "\n".join(
        f"static _Alignas({package.alignment_bytes}) uint8_t {region}[{macro}_{region.upper()}_BYTES];"
        for region in package.regions
    )
    init = ", ".join(f"{region}, sizeof {region}" for region in package.regions)
    arrays, calls = [], []
    for entry in package.functions:
        given = ["&ctx"]
        for one in arguments(package, entry):
            own = f"{entry.value}_{one.name}"
            is_wanted = not one.is_result or one.model_name != "correct"
            given.append(own if is_wanted else "NULL")
            if is_wanted:
                arrays.append(f"static {one.c_type} {own}[{one.macro}_COUNT];")
        calls.append(f"  if (!status) status = {name}_{entry.value}({', '.join(given)});")
    declared, called = "\n".join(arrays), "\n".join(calls)
    return f"""\
```c
#include <stdio.h>

#include "{name}.h"

{memory}
{declared}
static {name}_ctx ctx;

int main(void) {{
  int32_t status = {name}_init(&ctx, {init}, {macro}_PLAN_HASH);
  if (!status) status = {name}_state_reset(&ctx); /* or {name}_slots_load, {name}_checkpoint_load */
  /* Fill the inputs here, once for each call. */
{called}
  puts({name}_status_text(status));
  return status != 0;
}}
```"""


def _built(package: Package, code: CodeSize | None) -> str:
    if code is None:
        return f"Code and stack were not measured: {package.target.compiler} was not installed."
    stack = (
        ""
        if code.stack_bytes is None
        else f" Stack: at most {code.stack_bytes} bytes, the C library's functions on top."
    )
    return f"Code: {code.text_bytes} bytes with `{package.target.compiler} {code.flags}`.{stack}"


def _rounding(package: Package) -> str:
    if package.storage_error is None:
        return ""
    return f"""
Tensors whose type the plan gives as float16 or bfloat16 are kept in it; kernels compute in float32. In the
self-test that changes a loss by at most {package.storage_error:.1e} of one plus its size.
"""


def _functions_table(package: Package) -> str:
    regions = list(package.regions)
    head = " | ".join(["function", *(f"bytes of {region}" for region in regions), "what it does"])
    rule = "|".join(["---"] * (len(regions) + 2))
    rows = [
        "| "
        + " | ".join(
            [
                f"`{prototype(package, entry)}`",
                *(str(program.interface.arena_bytes[region]) for region in regions),
                entry.purpose,
            ]
        )
        + " |"
        for entry, program in package.functions.items()
    ]
    return "\n".join([f"| {head} |", f"|{rule}|", *rows, ""])


def _accumulation(package: Package) -> str:
    if not package.accumulates:
        return ""
    name, macro = package.name, package.macro
    return f"""
`{name}_accumulate` takes one sample and adds its gradients to sums behind the state;
`{name}_apply` makes one update of their mean, as a training step on all these samples at once would, within
rounding. Keep the first `..._ACCUMULATED_BYTES` of a region until then; `{name}_discard` forgets the sums.
A sample whose label is ignored has no loss and returns `{macro}_ENAN`: leave it out.
"""
