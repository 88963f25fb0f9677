"""The straight-line driver: one C call for each step of the plan."""

from __future__ import annotations

import numpy as np

from tvm_xengine.aot.c_names import c_identifier
from tvm_xengine.aot.emit_c.guards import input_guard, loss_guard, range_guard
from tvm_xengine.aot.emit_c.types_in_c import float_literal, stored_type
from tvm_xengine.aot.package.checkpoint import CHECK_CTX, checkpoint_functions
from tvm_xengine.aot.package.contents import Package, arguments_of, inputs_of
from tvm_xengine.program.step_program import (
    ArenaView,
    KernelRun,
    Operand,
    Outside,
    StepProgram,
    TensorCopy,
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

/* Differences wrap around, so that no size is too large. */
static int overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes) {{
  return (uintptr_t)a - (uintptr_t)b < b_bytes || (uintptr_t)b - (uintptr_t)a < a_bytes;
}}

static int32_t check_ctx(const {name}_ctx *ctx) {{
  if (!ctx) return {package.macro}_EINVAL;
  return (uintptr_t)ctx % sizeof(void *) ? {package.macro}_EALIGN : {package.macro}_OK;
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


def guard_protects_state(program: StepProgram) -> bool:
    """Whether the loss is known before anything of the state is written."""
    at = _loss_ready(program)
    return at is not None and not any(
        isinstance(call, KernelRun) and call.updates_state for call in program.calls[: at + 1]
    )


def _prototype(package: Package, function: str, program: StepProgram) -> str:
    inputs = [f"const {stored_type(view.dtype)} *{view.name}" for view in arguments_of(program)]
    results = [
        f"{stored_type(view.dtype)} *{_result_name(name, program)}"
        for name, view in program.interface.results.items()
    ]
    arguments = ", ".join([f"{package.name}_ctx *ctx", *inputs, *results])
    return f"int32_t {package.name}_{function}({arguments})"


def arguments_comment(program: StepProgram) -> str:
    """Lines that say of every argument and result of a function what it holds."""
    lines = [
        f"{view.name}: {_type_of(view)}{_allowed(program, name)}"
        for name, view in inputs_of(program).items()
    ]
    lines += [
        f"{_result_name(name, program)}: {_type_of(view)}"
        for name, view in program.interface.results.items()
    ]
    return "\n".join(f"     {line}" for line in lines)


def _type_of(view: Operand) -> str:
    return f"{view.dtype} {list(view.shape)}" if view.shape else f"one {view.dtype}"


def _allowed(program: StepProgram, name: str) -> str:
    """What an integer argument may hold."""
    allowed = program.interface.ranges.get(name)
    if allowed is None:
        return ""
    besides = "".join(f" or {value}" for value in allowed.besides)
    return f", each {allowed.low}..{allowed.high}{besides}"


def _result_name(result: str, program: StepProgram) -> str:
    name = c_identifier(result)
    return f"{name}_out" if name in {view.name for view in arguments_of(program)} else name


def _init(package: Package) -> str:
    macro, names = package.macro, list(package.regions)
    lines = [
        f"{init_prototype(package)} {{",
        CHECK_CTX,
        "  ctx->ready = 0;",
        *(f"  ctx->region[{position}] = NULL;" for position in range(len(names))),
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
        CHECK_CTX,
        f"  if (!ctx->region[0]) return {macro}_EINVAL;",
    ]
    for tensor in package.state:
        place, size = _bytes_at(package, tensor.place), tensor.place.size_bytes
        if tensor.initial.any():
            source = f"{package.name}_initial_{tensor.c_name}"
            lines.append(f"  memcpy({place}, {source}, {size}u);")
        else:
            lines.append(f"  memset({place}, 0, {size}u); /* {tensor.c_name} */")
    for hyper, value in package.hyper.items():
        lines.append(f"  ctx->{hyper} = {_float(float(np.float32(value)))};")
    lines += ["  ctx->ready = 1;", f"  return {macro}_OK;", "}"]
    return "\n".join(lines)


def _setter(package: Package, hyper: str) -> str:
    macro = package.macro
    return f"""\
int32_t {package.name}_set_{hyper}({package.name}_ctx *ctx, float {hyper}) {{
{CHECK_CTX}
  if (!({hyper} - {hyper} == 0.0f)) return {macro}_EINVAL; /* NaN and infinity are refused */
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
}}

/* A result may be missing; it must lie outside the regions and the context. */
static int32_t check_result(const {package.name}_ctx *ctx, const void *data, size_t bytes) {{
  if (!data) return {macro}_OK;
  if (overlap(data, bytes, ctx, sizeof *ctx)) return {macro}_EINVAL;
  return check_input(ctx, data, bytes, 1);
}}"""


def _function(package: Package, function: str, program: StepProgram, purpose: str) -> str:
    macro, trains = package.macro, function == "train_step"
    lines = [f"/* {purpose} */", f"{_prototype(package, function, program)} {{"]
    lines += [CHECK_CTX, f"  if (!ctx->ready) return {macro}_EINVAL;"]
    for view in arguments_of(program):
        align = (
            f"{macro}_INPUT_ALIGN" if package.backend.value == "llvm" else f"sizeof *{view.name}"
        )
        lines.append(
            f"  {{ int32_t status = check_input(ctx, {view.name}, {view.size_bytes}u, {align});"
            f" if (status) return status; }}"
        )
    for result, place in program.interface.results.items():
        lines.append(
            f"  {{ int32_t status = check_result(ctx, {_result_name(result, program)},"
            f" {place.size_bytes}u); if (status) return status; }}"
        )
    for name, view in inputs_of(program).items():
        if (allowed := program.interface.ranges.get(name)) is not None:
            lines += range_guard(package, view, allowed)
        elif trains and view.dtype == "float32":
            lines += input_guard(package, view)
    body = _calls(package, program, trains)
    text = "\n".join(body)
    for position, name in enumerate(package.regions):
        if f", {name}, " in text:
            lines.append(f"  uint8_t *const {name} = ctx->region[{position}];")
    lines += body
    lines += _results(package, program)
    lines += [f"  return {macro}_OK;", "}"]
    return "\n".join(lines)


def _calls(package: Package, program: StepProgram, trains: bool) -> list[str]:
    lines = []
    ready = _loss_ready(program) if trains else None
    for position, call in enumerate(program.calls):
        match call:
            case KernelRun():
                lines += _kernel_call(package, program, position, call)
            case TensorCopy():
                src, dst = (_pointer(place, "uint8_t") for place in (call.src, call.dst))
                lines.append(
                    f"  /* {position}: copy {call.tensor} from {call.src.device} to {call.dst.device} */"
                )
                lines.append(f"  memcpy({dst}, {src}, {call.dst.size_bytes}u);")
        if position == ready:
            loss = _pointer(program.interface.results["loss"], "const float", package)
            lines += loss_guard(package, loss)
    return lines


def _kernel_call(
    package: Package, program: StepProgram, position: int, call: KernelRun
) -> list[str]:
    code, kernel = package.codes[call.symbol], package.kernels[call.symbol]
    specs = [*kernel.inputs, *kernel.outputs]
    types = [stored_type(spec.dtype) for spec in specs] + ["uint8_t"] * (kernel.workspace_bytes > 0)
    over = {pair.input for pair in kernel.inplace}
    count = len(kernel.inputs)
    arguments = []
    for argument in code.arguments:
        constant = argument < count and argument not in over
        kind = f"const {types[argument]}" if constant else types[argument]
        arguments.append(_pointer(call.operands[argument], kind, package))
    again = ", computed again" if call.is_repeat else ""
    update = ", updates the state" if call.updates_state else ""
    return [
        f"  /* {position}: {call.op} in {call.device}{again}{update} */",
        f"  {code.name}({', '.join(arguments)});",
    ]


def _pointer(place: Operand, kind: str, package: Package | None = None) -> str:
    if isinstance(place, ArenaView):
        return f"AT({kind}, {place.device}, {place.offset_bytes}u)"
    match place.kind:
        case Outside.CONSTANT:
            assert package is not None
            return f"{package.name}_{place.name}"
        case Outside.CALLER:
            return place.name
        case Outside.SETTING:
            return f"&ctx->{place.name}"


def _bytes_at(package: Package, place: ArenaView) -> str:
    position = list(package.regions).index(place.device)
    return f"ctx->region[{position}] + {place.offset_bytes}u"


def _loss_ready(program: StepProgram) -> int | None:
    """Position of the last call that writes the loss."""
    loss = program.interface.results.get("loss")
    if not isinstance(loss, ArenaView):
        return None
    writes = [
        position
        for position, call in enumerate(program.calls)
        if isinstance(call, KernelRun) and any(_same_bytes(loss, o) for o in call.operands)
    ]
    # The bytes may hold something else earlier; after its last writer only readers come, and the
    # loss itself has none, so the last call that touches the place made it.
    return writes[-1] if writes else None


def _same_bytes(view: ArenaView, operand: Operand) -> bool:
    return isinstance(operand, ArenaView) and (operand.device, operand.offset_bytes) == (
        view.device,
        view.offset_bytes,
    )


def _results(package: Package, program: StepProgram) -> list[str]:
    lines = []
    for result, view in program.interface.results.items():
        name = _result_name(result, program)
        source = _pointer(view, "const uint8_t", package)
        lines.append(f"  if ({name}) memcpy({name}, {source}, {view.size_bytes}u);")
    return lines


def _float(value: float) -> str:
    return float_literal(value, "float32")
