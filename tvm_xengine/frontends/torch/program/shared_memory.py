"""Tensors of a program that lie in one memory; a step holds each by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from tvm_xengine.errors import UnsupportedModelError


def check_shared_memory(name: str, program: ExportedProgram, prefix: str) -> None:
    """Refuse a trained parameter that shares elements with another tensor, seen in another way.

    What an optimizer writes to one of them would change the other. Parameters that are one piece of
    memory, seen alike, are one parameter.

    Raises
    ------
    UnsupportedModelError
        Names both.
    """
    state, parameters = _state(program), set(program.graph_signature.parameters)
    for key in sorted(parameters & state.keys()):
        if state[key].requires_grad and _repeats(state[key]):
            raise UnsupportedModelError(
                f"{name}: {key.removeprefix(prefix)} repeats its elements in memory, as expand makes it,"
                " and a step writes each by itself; give it a copy (clone)"
            )
    for first, second in sharing(state):
        is_tied = {first, second} <= parameters and memory(state[first]) == memory(state[second])
        if not is_tied and any(state[one].requires_grad for one in (first, second)):
            raise UnsupportedModelError(f"{name}: {sentence(first, second, prefix)}")


def shared_memory(program: ExportedProgram, prefix: str) -> str | None:
    """The sentence about the first two tensors that share elements; None where there are none."""
    pair = next(sharing(_state(program)), None)
    return None if pair is None else sentence(*pair, prefix)


def sentence(first: str, second: str, prefix: str) -> str:
    """What is wrong with two tensors that share elements, and what to do."""
    names = " and ".join(sorted(one.removeprefix(prefix) for one in (first, second)))
    return (
        f"{names} lie in the same memory, so that writing one changes the other; give each a copy"
        " (clone), or use one of them in both places"
    )


def sharing(tensors: Mapping[str, torch.Tensor]) -> Iterator[tuple[str, str]]:
    """Pairs of names whose tensors have an element in common."""
    spans = sorted((*_span(value), key) for key, value in tensors.items() if value.numel())
    open_spans: list[tuple[int, str]] = []
    for start, end, key in spans:
        open_spans = [one for one in open_spans if one[0] > start]
        for _, other in open_spans:
            if np.intersect1d(_addresses(tensors[other]), _addresses(tensors[key])).size:
                yield other, key
        open_spans.append((end, key))


def memory(value: torch.Tensor) -> object:
    """What two tensors have in common when they are one piece of memory, seen alike."""
    if value.numel() == 0:
        return id(value)
    return value.data_ptr(), value.dtype, value.shape, value.stride()


def _state(program: ExportedProgram) -> dict[str, torch.Tensor]:
    """Parameters and buffers by name."""
    kinds = (InputKind.PARAMETER, InputKind.BUFFER)
    values = {**dict(program.named_buffers()), **program.state_dict}
    return {
        str(spec.target): values[spec.target]
        for spec in program.graph_signature.input_specs
        if spec.kind in kinds and values[spec.target].layout is torch.strided
    }


def _span(value: torch.Tensor) -> tuple[int, int]:
    """Addresses of the first byte, and behind the last one."""
    last = sum((n - 1) * step for n, step in zip(value.shape, value.stride(), strict=True))
    return value.data_ptr(), value.data_ptr() + (last + 1) * value.element_size()


def _repeats(value: torch.Tensor) -> bool:
    """Whether elements of a tensor lie in one place; neither PyTorch's optimizers write such a one."""
    return any(n > 1 and not step for n, step in zip(value.shape, value.stride(), strict=True))


def _addresses(value: torch.Tensor) -> NDArray[np.int64]:
    """The address of every element."""
    places = np.zeros((), np.int64)
    for extent, step in zip(value.shape, value.stride(), strict=True):
        places = places[..., None] + np.arange(extent) * step
    addresses: NDArray[np.int64] = value.data_ptr() + places.ravel() * value.element_size()
    return addresses
