"""Which part of a kernel oneDNN computes."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx

from tvm_xengine.libraries.library_call import LibraryCall
from tvm_xengine.libraries.onednn.operations import (
    ENDS_WITH_BIAS_AND_RELU,
    HAS_POSITIONS,
    OPERATIONS,
)
from tvm_xengine.libraries.parts import KernelParts, Part


@dataclass(frozen=True)
class Claim:
    """A call and the parts of the kernel that it stands for.

    Attributes
    ----------
    inputs
        For each input of the call the number of an input of the kernel.
    made
        Number of the value that the call makes.
    """

    call: LibraryCall
    inputs: tuple[int, ...]
    taken: frozenset[int]
    made: int


def claim_alone(func: tirx.PrimFunc, num_outputs: int, threads: int) -> Claim | None:
    """What oneDNN can take of a kernel with several outputs: all of it, or nothing."""
    part = Part(func, tuple(range(len(func.params) - num_outputs)))
    if part.name not in OPERATIONS or not _has_types(part):
        return None
    call = LibraryCall(
        operation=part.name,
        options=part.options,
        shapes=tuple(_shape(part, k) for k in range(len(func.params))),
        threads=threads,
        num_outputs=num_outputs,
    )
    return Claim(call, part.inputs, frozenset({0}), len(part.inputs))


def claim(whole: KernelParts, threads: int) -> Claim | None:
    """What oneDNN can take of a kernel: one operation of inputs, its bias and relu with it."""
    cores = [k for k, part in enumerate(whole.parts) if part.name in OPERATIONS]
    if len(cores) != 1:
        return None
    (core,) = cores
    part = whole.parts[core]
    if any(number >= whole.num_inputs for number in part.inputs) or not _has_types(part):
        return None
    taken, inputs, made = {core}, part.inputs, whole.value_of(core)
    has_bias = has_relu = False
    if part.name in ENDS_WITH_BIAS_AND_RELU:
        if (found := _bias(whole, part, made)) is not None:
            adding, bias = found
            has_bias, inputs, made = True, (*inputs, bias), whole.value_of(adding)
            taken.add(adding)
        if (clipping := _only_reader(whole, made, "relu")) is not None:
            has_relu, made = True, whole.value_of(clipping)
            taken.add(clipping)
    shapes = [_shape(part, k) for k in range(len(part.inputs))]
    if has_bias:
        shapes.append((_channels(part),))
    call = LibraryCall(
        operation=part.name,
        options=part.options,
        shapes=(*shapes, part.output_shape),
        threads=threads,
        bias=has_bias,
        relu=has_relu,
    )
    return Claim(call, inputs, frozenset(taken), made)


def _bias(whole: KernelParts, core: Part, made: int) -> tuple[int, int] | None:
    """(position of the part that adds a bias to the core's result, number of the bias)."""
    adding = _only_reader(whole, made, "add")
    if adding is None or len(whole.parts[adding].inputs) != 2:
        return None
    part = whole.parts[adding]
    other = 1 - part.inputs.index(made)
    number = part.inputs[other]
    if number >= whole.num_inputs or part.output_shape != core.output_shape:
        return None
    return (adding, number) if _is_per_channel(core, _shape(part, other)) else None


def _only_reader(whole: KernelParts, value: int, name: str) -> int | None:
    """The part that reads a value, when it is the only one, reads it once, and is called so."""
    readers = [k for k, part in enumerate(whole.parts) for number in part.inputs if number == value]
    return readers[0] if len(readers) == 1 and whole.parts[readers[0]].name == name else None


def _is_per_channel(core: Part, shape: tuple[int, ...]) -> bool:
    rank, axis = len(core.output_shape), _channel_axis(core)
    if len(shape) > rank:
        return False
    padded = (1,) * (rank - len(shape)) + shape
    return all(extent == (_channels(core) if a == axis else 1) for a, extent in enumerate(padded))


def _channel_axis(core: Part) -> int:
    return 1 if core.name == "convolution" else len(core.output_shape) - 1


def _channels(core: Part) -> int:
    return core.output_shape[_channel_axis(core)]


def _shape(part: Part, position: int) -> tuple[int, ...]:
    return tuple(int(extent) for extent in part.func.params[position].ty.shape)


def _has_types(part: Part) -> bool:
    """Whether all is float32, positions excepted."""
    allowed = {"float32", "int32"} if part.name in HAS_POSITIONS else {"float32"}
    return {str(param.ty.dtype.dtype) for param in part.func.params} <= allowed
