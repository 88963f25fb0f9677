"""The straight-line driver: one C call for each step of the plan."""

from __future__ import annotations

import numpy as np

from tvm_xengine.aot.emit_c.types_in_c import float_literal, stored_type
from tvm_xengine.aot.package.checkpoint import checkpoint_functions
from tvm_xengine.aot.package.contents import Package
from tvm_xengine.aot.plan.places import (
    CopyCall,
    Field,
    FromCaller,
    InContext,
    InFlash,
    InRegion,
    KernelCall,
    Place,
    Program,
)


def driver_source(package: Package) -> str:
    """The text of ``<name>.c``."""
    name = package.name
    parts = [
        f"""\
/* Training step of {name}, made by tvm-xengine. Calls in the order of the plan; see {name}_plan.json.
   No heap, no files, no globals that change. Compile with -fno-strict-aliasing: one byte of an
   arena holds values of several types, one after the other. */
#include "{name}.h"

#include <string.h>

#include "{name}_kernels.h"

/* The bytes at an offset of a region, as a pointer to a type. */
#define AT(type, region, offset) ((type *)(void *)((region) + (offset)))

static int overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes) {{
  uintptr_t a_start = (uintptr_t)a, b_start = (uintptr_t)b;
  return a_start < b_start + b_bytes && b_start < a_start + a_bytes;
}}""",
        _init(package),
        _reset(package),
        *(_setter(package, hyper) for hyper in package.hyper),
        _input_check(package),
        _function(package, "train_step", package.train, "One training step."),
        _function(
            package, "eval", package.evaluate, "The forward pass, as it is used after training."
        ),
        checkpoint_functions(package),
    ]
    return "\n\n".join(parts) + "\n"


def train_prototype(package: Package) -> str:
    """Declaration of the training step, without semicolon."""
    return _prototype(package, "train_step", package.train)


def eval_prototype(package: Package) -> str:
    """Declaration of the evaluation, without semicolon."""
    return _prototype(package, "eval", package.evaluate)


def init_prototype(package: Package) -> str:
    """Declaration of the initialisation, without semicolon."""
    memory = "".join(f", void *{name}, size_t {name}_bytes" for name in package.regions)
    return f"int32_t {package.name}_init({package.name}_ctx *ctx{memory}, uint64_t plan_hash)"


def guard_protects_state(program: Program) -> bool:
    """Whether the loss is known before anything of the state is written."""
    at = _loss_ready(program)
    return at is not None and not any(
        isinstance(call, KernelCall) and call.updates_state for call in program.calls[: at + 1]
    )


def _prototype(package: Package, function: str, program: Program) -> str:
    inputs = [f"const {stored_type(field.dtype)} *{field.c_name}" for field in program.inputs]
    results = [
        f"{stored_type(field.dtype)} *{_result_name(field, program)}"
        for field, _ in program.results.values()
    ]
    arguments = ", ".join([f"{package.name}_ctx *ctx", *inputs, *results])
    return f"int32_t {package.name}_{function}({arguments})"


def _result_name(field: Field, program: Program) -> str:
    taken = {other.c_name for other in program.inputs}
    return f"{field.c_name}_out" if field.c_name in taken else field.c_name


def _init(package: Package) -> str:
    macro, names = package.macro, list(package.regions)
    lines = [
        f"{init_prototype(package)} {{",
        f"  if (!ctx) return {macro}_EINVAL;",
        "  ctx->ready = 0;",
    ]
    lines.append(f"  if (plan_hash != {macro}_PLAN_HASH) return {macro}_EPLAN;")
    for name in names:
        lines.append(f"  if (!{name}) return {macro}_EINVAL;")
        lines.append(f"  if ((uintptr_t){name} % {macro}_ALIGN) return {macro}_EALIGN;")
        lines.append(f"  if ({name}_bytes < {macro}_{name.upper()}_BYTES) return {macro}_ESIZE;")
    for position, name in enumerate(names):
        lines += [
            f"  if (overlap({name}, {name}_bytes, {other}, {other}_bytes)) return {macro}_EINVAL;"
            for other in names[position + 1 :]
        ]
        lines.append(
            f"  if (overlap({name}, {name}_bytes, ctx, sizeof *ctx)) return {macro}_EINVAL;"
        )
    lines += [f"  ctx->region[{position}] = {name};" for position, name in enumerate(names)]
    lines += [f"  ctx->{hyper} = 0.0f;" for hyper in package.hyper]
    lines += [f"  return {macro}_OK;", "}"]
    return "\n".join(lines)


def _reset(package: Package) -> str:
    macro = package.macro
    lines = [
        f"int32_t {package.name}_state_reset({package.name}_ctx *ctx) {{",
        f"  if (!ctx || !ctx->region[0]) return {macro}_EINVAL;",
    ]
    for tensor in package.state:
        field = tensor.field
        place = _bytes_at(package, tensor.place)
        if tensor.initial.any():
            source = f"{package.name}_initial_{field.c_name}"
            lines.append(f"  memcpy({place}, {source}, {field.size_bytes}u);")
        else:
            lines.append(f"  memset({place}, 0, {field.size_bytes}u); /* {field.c_name} */")
    for hyper, value in package.hyper.items():
        lines.append(f"  ctx->{hyper} = {_float(float(np.float32(value)))};")
    lines += ["  ctx->ready = 1;", f"  return {macro}_OK;", "}"]
    return "\n".join(lines)


def _setter(package: Package, hyper: str) -> str:
    macro = package.macro
    return f"""\
int32_t {package.name}_set_{hyper}({package.name}_ctx *ctx, float {hyper}) {{
  if (!ctx || !({hyper} - {hyper} == 0.0f)) return {macro}_EINVAL; /* NaN and infinity are refused */
  ctx->{hyper} = {hyper};
  return {macro}_OK;
}}"""


def _input_check(package: Package) -> str:
    macro = package.macro
    checks = "\n".join(
        f"  if (overlap(data, bytes, ctx->region[{position}], {macro}_{name.upper()}_BYTES))"
        f" return {macro}_EINVAL;"
        for position, name in enumerate(package.regions)
    )
    return f"""\
/* An argument must be there, be aligned, and lie outside the regions. */
static int32_t check_input(const {package.name}_ctx *ctx, const void *data, size_t bytes, size_t align) {{
  if (!data) return {macro}_EINVAL;
  if ((uintptr_t)data % align) return {macro}_EALIGN;
{checks}
  return {macro}_OK;
}}"""


def _function(package: Package, function: str, program: Program, purpose: str) -> str:
    macro, trains = package.macro, function == "train_step"
    lines = [f"/* {purpose} */", f"{_prototype(package, function, program)} {{"]
    lines.append(f"  if (!ctx || !ctx->ready) return {macro}_EINVAL;")
    for field in program.inputs:
        align = (
            f"{macro}_INPUT_ALIGN" if package.backend.value == "llvm" else f"sizeof *{field.c_name}"
        )
        lines.append(
            f"  {{ int32_t status = check_input(ctx, {field.c_name}, {field.size_bytes}u, {align});"
            f" if (status) return status; }}"
        )
    body = _calls(package, program, trains)
    text = "\n".join(body)
    for position, name in enumerate(package.regions):
        if f", {name}, " in text:
            lines.append(f"  uint8_t *const {name} = ctx->region[{position}];")
    lines += body
    lines += _results(package, program)
    lines += [f"  return {macro}_OK;", "}"]
    return "\n".join(lines)


def _calls(package: Package, program: Program, trains: bool) -> list[str]:
    lines = []
    ready = _loss_ready(program) if trains else None
    for position, call in enumerate(program.calls):
        match call:
            case KernelCall():
                lines += _kernel_call(package, program, position, call)
            case CopyCall():
                src, dst = (_pointer(place, "uint8_t") for place in (call.src, call.dst))
                lines.append(
                    f"  /* {position}: copy {call.tensor} from {call.src.region} to {call.dst.region} */"
                )
                lines.append(f"  memcpy({dst}, {src}, {call.size_bytes}u);")
        if position == ready:
            lines += _nan_guard(package, program)
    return lines


def _kernel_call(package: Package, program: Program, position: int, call: KernelCall) -> list[str]:
    code, kernel = package.codes[call.symbol], package.kernels[call.symbol]
    specs = [*kernel.inputs, *kernel.outputs]
    types = [stored_type(spec.dtype) for spec in specs] + ["uint8_t"] * (kernel.workspace_bytes > 0)
    over = {pair.input for pair in kernel.inplace}
    count = len(kernel.inputs)
    arguments = []
    for argument in code.arguments:
        constant = argument < count and argument not in over
        kind = f"const {types[argument]}" if constant else types[argument]
        arguments.append(_pointer(call.places[argument], kind, package))
    again = ", computed again" if call.is_repeat else ""
    update = ", updates the state" if call.updates_state else ""
    return [
        f"  /* {position}: {call.op} in {call.region}{again}{update} */",
        f"  {code.name}({', '.join(arguments)});",
    ]


def _pointer(place: Place, kind: str, package: Package | None = None) -> str:
    match place:
        case InRegion(region, offset):
            return f"AT({kind}, {region}, {offset}u)"
        case InFlash(name):
            assert package is not None
            return f"{package.name}_{name}"
        case FromCaller(name):
            return name
        case InContext(name):
            return f"&ctx->{name}"


def _bytes_at(package: Package, place: InRegion) -> str:
    position = list(package.regions).index(place.region)
    return f"ctx->region[{position}] + {place.offset_bytes}u"


def _loss_ready(program: Program) -> int | None:
    """Position of the last call that writes the loss."""
    if "loss" not in program.results:
        return None
    _, place = program.results["loss"]
    writes = [
        position
        for position, call in enumerate(program.calls)
        if isinstance(call, KernelCall) and place in call.places
    ]
    # The bytes may hold something else earlier; after its last writer only readers come, and the
    # loss itself has none, so the last call that touches the place made it.
    return writes[-1] if writes else None


def _nan_guard(package: Package, program: Program) -> list[str]:
    _, place = program.results["loss"]
    value = f"*{_pointer(place, 'const float', package)}"
    return [
        f"#if {package.macro}_NAN_GUARD",
        f"  if (!({value} - {value} == 0.0f)) return {package.macro}_ENAN;",
        "#endif",
    ]


def _results(package: Package, program: Program) -> list[str]:
    lines = []
    for field, place in program.results.values():
        name = _result_name(field, program)
        source = _pointer(place, "const uint8_t", package)
        lines.append(f"  if ({name}) memcpy({name}, {source}, {field.size_bytes}u);")
    return lines


def _float(value: float) -> str:
    return float_literal(value, "float32")
