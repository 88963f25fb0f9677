"""Selection of the part of a kernel that a library computes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvm import tirx

from tvm_xengine.kernels.library.call import LibraryCall
from tvm_xengine.kernels.library.parts import KernelParts, Part


@dataclass(frozen=True)
class Abilities:
    """What a library computes.

    Attributes
    ----------
    source
        Name of the kernel source.
    operations
        Names of training kernels.
    has_positions
        Those with tensors of int32 in addition to those of float32.
    adds_a_bias
        Those that add a bias as they write their result.
    adds_a_tensor
        Those that may add a tensor of their result's shape to it.
    """

    source: str
    operations: frozenset[str]
    has_positions: frozenset[str] = frozenset()
    adds_a_bias: frozenset[str] = frozenset()
    adds_a_tensor: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Claim:
    """A call and the parts of the kernel that it computes.

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


def claims_alone(
    func: tirx.PrimFunc, abilities: Abilities, num_outputs: int, threads: int
) -> Iterator[Claim]:
    """The claims on a kernel with several outputs: all of it, or none."""
    part = Part(func, tuple(range(len(func.params) - num_outputs)))
    if part.name not in abilities.operations or not _has_types(part, abilities):
        return
    call = LibraryCall(
        operation=part.name,
        options=part.options,
        shapes=tuple(_shape(part, k) for k in range(len(func.params))),
        threads=threads,
        source=abilities.source,
        num_outputs=num_outputs,
    )
    yield Claim(call, part.inputs, frozenset({0}), len(part.inputs))


def claims(whole: KernelParts, abilities: Abilities, threads: int) -> Iterator[Claim]:
    """What a library may take of a kernel, the most first: one operation and what ends it."""
    cores = [k for k, part in enumerate(whole.parts) if part.name in abilities.operations]
    if len(cores) != 1:
        return
    (core,) = cores
    part = whole.parts[core]
    if any(number >= whole.num_inputs for number in part.inputs) or not _has_types(part, abilities):
        return
    with_residual = _claim(whole, core, abilities, threads, adds=True)
    if with_residual.call.residual:
        yield with_residual
    yield _claim(whole, core, abilities, threads, adds=False)


def _claim(
    whole: KernelParts, core: int, abilities: Abilities, threads: int, *, adds: bool
) -> Claim:
    """A part with its bias, and with the tensor that is added to it."""
    part = whole.parts[core]
    taken, inputs, made = {core}, part.inputs, whole.value_of(core)
    has_bias = has_residual = False
    if part.name in abilities.adds_a_bias and (found := _bias(whole, part, made)) is not None:
        adding, bias = found
        has_bias, inputs, made = True, (*inputs, bias), whole.value_of(adding)
        taken.add(adding)
    if (
        adds
        and part.name in abilities.adds_a_tensor
        and (found := _added(whole, part, made)) is not None
    ):
        adding, residual = found
        has_residual, inputs, made = True, (*inputs, residual), whole.value_of(adding)
        taken.add(adding)
    shapes = [_shape(part, k) for k in range(len(part.inputs))]
    if has_bias:
        shapes.append((_channels(part),))
    if has_residual:
        shapes.append(part.output_shape)
    call = LibraryCall(
        operation=part.name,
        options=part.options,
        shapes=(*shapes, part.output_shape),
        threads=threads,
        source=abilities.source,
        bias=has_bias,
        residual=has_residual,
    )
    return Claim(call, inputs, frozenset(taken), made)


def _bias(whole: KernelParts, core: Part, made: int) -> tuple[int, int] | None:
    """(position of the part that adds a bias to the core's result, number of the bias)."""
    found = _addition(whole, core, made)
    return found[:2] if found is not None and _is_per_channel(core, found[2]) else None


def _added(whole: KernelParts, core: Part, made: int) -> tuple[int, int] | None:
    """(position of the part that adds a tensor of the same shape, number of that)."""
    found = _addition(whole, core, made)
    return found[:2] if found is not None and found[2] == core.output_shape else None


def _addition(whole: KernelParts, core: Part, made: int) -> tuple[int, int, tuple[int, ...]] | None:
    """(position of the part that adds an input to the result, number of the input, its shape)."""
    adding = _only_reader(whole, made, "add")
    if adding is None or len(whole.parts[adding].inputs) != 2:
        return None
    part = whole.parts[adding]
    other = 1 - part.inputs.index(made)
    number = part.inputs[other]
    if number >= whole.num_inputs or part.output_shape != core.output_shape:
        return None
    return adding, number, _shape(part, other)


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


def _has_types(part: Part, abilities: Abilities) -> bool:
    """Whether all is float32, positions excepted."""
    allowed = {"float32", "int32"} if part.name in abilities.has_positions else {"float32"}
    return {str(param.ty.dtype.dtype) for param in part.func.params} <= allowed
