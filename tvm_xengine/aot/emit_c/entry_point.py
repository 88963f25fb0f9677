"""The straight-line body of an entry point: one C call for each step of the plan."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from tvm_xengine.aot.emit_c.guards import input_guard, loss_guard, range_guard
from tvm_xengine.aot.emit_c.prototypes import arguments, prototype
from tvm_xengine.aot.emit_c.status import CHECK_CTX
from tvm_xengine.aot.emit_c.tiles import tiled_name, tiled_operands
from tvm_xengine.aot.emit_c.types_in_c import stored_type
from tvm_xengine.aot.entries import Entry
from tvm_xengine.aot.package.contents import GRADIENT_WEIGHT, Package
from tvm_xengine.aot.plan.tiles import TiledKernel
from tvm_xengine.program.step_program import (
    ArenaView,
    Call,
    KernelRun,
    Operand,
    Outside,
    StepProgram,
    TensorCopy,
)
from tvm_xengine.program.transfers import Action, Channel, Run, Start, Wait, in_transfers


def entry_point(package: Package, entry: Entry) -> str:
    """The definition of an entry point."""
    lines = [f"/* {entry.purpose} */", f"{prototype(package, entry)} {{"]
    lines += _checks(package, entry)
    body = [*_before(package, entry), *_calls(package, entry), *_after(package, entry)]
    text = "\n".join([*body, *_results(package, entry)])
    for position, name in enumerate(package.regions):
        if f", {name}, " in text:
            lines.append(f"  uint8_t *const {name} = ctx->region[{position}];")
    lines += [*body, *_results(package, entry)]
    return "\n".join([*lines, f"  return {package.macro}_OK;", "}"])


def guard_protects_state(program: StepProgram) -> bool:
    """Whether the loss is known before anything of the state is written."""
    at = _loss_ready(program)
    return at is not None and not any(
        isinstance(call, KernelRun) and call.updates_state for call in program.calls[: at + 1]
    )


def _checks(package: Package, entry: Entry) -> list[str]:
    """Everything that is refused before anything is written."""
    macro, given = package.macro, arguments(package, entry)
    lines = [CHECK_CTX, f"  if (!ctx->ready) return {macro}_EINVAL;"]
    if package.accumulates and entry is Entry.TRAIN_STEP:
        lines.append(f"  if (ctx->samples) return {macro}_EBUSY; /* its arena holds the sums */")
    if entry is Entry.APPLY:
        lines.append(f"  if (!ctx->samples) return {macro}_EEMPTY;")
    for one in given:
        if one.is_result:
            check = f"check_result(ctx, {one.name}, {one.place.size_bytes}u)"
        else:
            is_object = package.backend.value == "llvm"
            align = f"{macro}_INPUT_ALIGN" if is_object else f"sizeof *{one.name}"
            check = f"check_input(ctx, {one.name}, {one.place.size_bytes}u, {align})"
        lines.append(f"  {{ int32_t status = {check}; if (status) return status; }}")
    for one in given:
        if one.allowed is not None:
            lines += range_guard(package, one)
        elif one.place.dtype == "float32" and not one.is_result:
            lines += input_guard(package, one)
    return lines


def _before(package: Package, entry: Entry) -> list[str]:
    if entry is Entry.APPLY:
        return ["  ctx->gradient_scale = 1.0f / ctx->gradient_weight;"]
    if entry is not Entry.ACCUMULATE:
        return []
    cleared = [
        f"    memset({bytes_at(package, place)}, 0, {place.size_bytes}u); /* {name} */"
        for name, place in package.sums.items()
    ]
    return ["  if (!ctx->samples) {", "    ctx->gradient_weight = 0.0f;", *cleared, "  }"]


def _after(package: Package, entry: Entry) -> list[str]:
    if entry is Entry.APPLY:
        return ["  ctx->samples = 0;"]
    if entry is not Entry.ACCUMULATE:
        return []
    weight = package.functions[entry].interface.results.get(GRADIENT_WEIGHT)
    added = "1.0f" if weight is None else f"*{_pointer(weight, 'const float', package)}"
    return [f"  ctx->gradient_weight += {added};", "  ctx->samples++;"]


def _calls(package: Package, entry: Entry) -> list[str]:
    lines = []
    program = package.functions[entry]
    ready = _loss_ready(program) if entry.learns else None
    for action in _actions(package, program):
        match action:
            case Run():
                lines += _call(package, action.position, program.calls[action.position])
            case Start():
                lines += _started(package, action, program)
            case Wait():
                lines.append(_waiting(package, action.channel, action.pending))
        if isinstance(action, (Run, Start)) and action.position == ready:
            left = [_waiting(package, channel, 0) for channel in package.channels]
            lines += left if isinstance(action, Start) else []
            loss = _pointer(program.interface.results["loss"], "const float", package)
            lines += loss_guard(package, loss, left)
    return lines


def _actions(package: Package, program: StepProgram) -> Sequence[Action]:
    if package.channels:
        return in_transfers(program, package.channels)
    return [Run(position) for position in range(len(program.calls))]


def _call(package: Package, position: int, call: Call) -> list[str]:
    if isinstance(call, KernelRun):
        return _kernel_call(package, position, call)
    src, dst = (_pointer(place, "uint8_t") for place in (call.src, call.dst))
    return [
        f"  /* {position}: copy {call.tensor} from {call.src.device} to {call.dst.device} */",
        f"  memcpy({dst}, {src}, {call.dst.size_bytes}u);",
    ]


def _started(package: Package, start: Start, program: StepProgram) -> list[str]:
    call = program.calls[start.position]
    assert isinstance(call, TensorCopy)
    src, dst = _pointer(call.src, "const uint8_t"), _pointer(call.dst, "uint8_t")
    channel = package.channels.index(start.channel)
    return [
        f"  /* {start.position}: start to copy {call.tensor} from {call.src.device} to {call.dst.device} */",
        f"  dma_start(ctx, {channel}u, {dst}, {src}, {call.dst.size_bytes}u);",
    ]


def _waiting(package: Package, channel: Channel, pending: int) -> str:
    return f"  dma_wait(ctx, {package.channels.index(channel)}u, {pending}u);"


def _kernel_call(package: Package, position: int, call: KernelRun) -> list[str]:
    code, kernel = package.codes[call.symbol], package.kernels[call.symbol]
    again = ", computed again" if call.is_repeat else ""
    update = ", updates the state" if call.updates_state else ""
    comment = f"  /* {position}: {call.op} in {call.device}{again}{update} */"
    if isinstance(kernel, TiledKernel):
        numbers = tiled_operands(package, call.symbol, kernel)
        inputs = len(kernel.inputs)
        kinds = ["const uint8_t" if number < inputs else "uint8_t" for number in numbers]
        given = [
            _pointer(call.operands[number], kind, package)
            for number, kind in zip(numbers, kinds, strict=True)
        ]
        return [comment, f"  {tiled_name(package, call.symbol)}({', '.join(['ctx', *given])});"]
    specs = [*kernel.inputs, *kernel.outputs]
    types = [stored_type(spec.dtype) for spec in specs] + ["uint8_t"] * (kernel.workspace_bytes > 0)
    over = {pair.input for pair in kernel.inplace}
    count = len(kernel.inputs)
    given = []
    for argument, first in zip_longest(code.arguments, code.first, fillvalue=0):
        constant = argument < count and argument not in over
        kind = f"const {types[argument]}" if constant else types[argument]
        place = _pointer(call.operands[argument], kind, package)
        given.append(f"{place} + {first}" if first else place)
    return [
        comment,
        f"  {code.name}({', '.join(given)});",
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


def bytes_at(package: Package, place: ArenaView) -> str:
    """The first byte of a tensor in its region, as a pointer."""
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


def _results(package: Package, entry: Entry) -> list[str]:
    lines = []
    for one in arguments(package, entry):
        if one.is_result:
            source = _pointer(one.place, "const uint8_t", package)
            lines.append(
                f"  if ({one.name}) memcpy({one.name}, {source}, {one.place.size_bytes}u);"
            )
    return lines
