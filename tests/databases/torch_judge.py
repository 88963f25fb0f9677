"""Compare samples of PyTorch's databases with what this project makes of them."""

from __future__ import annotations

import re
import unittest.mock
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from tests.databases.torch_samples import SEED, UNDEFINED, Sample
from tests.databases.verdict import Status
from tests.databases.vjp import Evaluation
from tests.databases.vjp import evaluate as evaluate_in_vm
from tvm_xengine.errors import XEngineError
from tvm_xengine.frontends.model import Array, ForwardModel
from tvm_xengine.frontends.naming_builder import identifier
from tvm_xengine.frontends.torch.read import from_torch_export

TOLERANCES = {"float64": 1e-7, "float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}
"""Relative to the largest entry; another order of summation costs a few units of the last place."""

INEXACT = {f"special.bessel_{name}": 1e-6 for name in ("j0", "j1", "y0", "y1")}
"""Operators whose values in PyTorch are off by so much beyond 5; SciPy judges them in
``tests/training/cases/pointwise.py``."""

REFUSALS = (XEngineError,)

Outcome = tuple[Status, str]


@dataclass(frozen=True)
class Reference:
    """What PyTorch computes.

    Attributes
    ----------
    outputs
        The tensors that the call returns.
    above
        Gradients of the outputs, by position, from which `gradients` were computed.
    gradients
        Of the parameters that require one; None where autograd gives none.
    error
        By how much PyTorch's own values are wrong.
    """

    outputs: tuple[Array, ...]
    above: Mapping[int, Array]
    gradients: Mapping[str, Array | None]
    is_random: bool
    error: float = 0.0


class Batch(nn.Module):
    """Several samples as one module, because export and compilation have a price per module."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        super().__init__()
        self.samples = nn.ModuleList(samples)
        self._counts = [len(sample.inputs) for sample in samples]

    def forward(self, *inputs: torch.Tensor) -> list[tuple[torch.Tensor, ...]]:
        """The outputs of each sample."""
        made, start = [], 0
        for sample, count in zip(self.samples, self._counts, strict=True):
            made.append(sample(*inputs[start : start + count]))
            start += count
        return made


Evaluate = Callable[[ForwardModel, Sequence[Array], Mapping[int, Array]], Evaluation]
"""Runs a model and its gradient once, for inputs and gradients of the outputs by position."""


def judge(
    name: str, samples: Sequence[Sample], evaluate: Evaluate = evaluate_in_vm
) -> list[Outcome]:
    """The verdicts on samples of one operator, from one export if all of them can be."""
    references: list[Reference | Outcome] = [_reference(name, sample) for sample in samples]
    judged = [k for k, one in enumerate(references) if isinstance(one, Reference)]
    outcomes = {k: one for k, one in enumerate(references) if not isinstance(one, Reference)}
    if judged:
        pairs = [(samples[k], references[k]) for k in judged]
        outcomes.update(zip(judged, _judge_together(pairs, evaluate), strict=True))  # type: ignore[arg-type]
    return [outcomes[k] for k in range(len(samples))]


def _judge_together(pairs: Sequence[tuple[Sample, Reference]], evaluate: Evaluate) -> list[Outcome]:
    try:
        return _compared(pairs, evaluate)
    except Exception as error:  # whatever it is, it is the verdict
        if len(pairs) == 1:
            return [_failure(error)]
        refused = _named_in(error)
        if 2 * len(refused) < len(pairs):
            return [outcome for pair in pairs for outcome in _judge_together([pair], evaluate)]
        left = [k for k in range(len(pairs)) if k not in refused]
        outcomes = dict.fromkeys(refused, _failure(error))
        if left:
            others = _judge_together([pairs[k] for k in left], evaluate)
            outcomes.update(zip(left, others, strict=True))
        return [outcomes[k] for k in range(len(pairs))]


def _named_in(error: Exception) -> set[int]:
    """The samples of a batch whose operators a refusal names."""
    if not isinstance(error, REFUSALS) or error.__cause__ is not None:
        return set()
    return {int(number) for number in re.findall(r"\(in samples[._](\d+)", str(error))}


def _failure(error: Exception) -> Outcome:
    reason = " ".join(str(error).split())[:300]
    if isinstance(error, NotExportableError):
        return Status.NOT_EXPORTABLE, reason
    cause = error.__cause__
    if isinstance(error, REFUSALS) and (cause is None or isinstance(cause, REFUSALS)):
        return Status.REFUSED, reason
    return Status.CRASHED, f"{type(cause or error).__name__}: {reason}"


class NotExportableError(Exception):
    """torch.export or PyTorch itself refuses the sample."""


def _reference(name: str, sample: Sample) -> Reference | Outcome:
    try:
        first = _run_eagerly(sample, SEED)
        others = _drawn_again(sample)
    except Exception as error:
        return Status.NOT_EXPORTABLE, " ".join(f"PyTorch: {error}".split())[:300]
    if not first.outputs:
        return Status.NOT_EXPORTABLE, "the operator returns no tensor"
    is_random = name in UNDEFINED or any(
        not np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")
        for outputs in others
        for a, b in zip(first.outputs, outputs, strict=True)
    )
    error = INEXACT.get(name, 0.0)
    return Reference(first.outputs, first.above, first.gradients, is_random, error)


DRAWS = 16
"""A window of a few places is the same in most draws; that all of these agree by chance is unlikely."""


def _drawn_again(sample: Sample) -> list[tuple[Array, ...]]:
    """The outputs of more runs from other seeds, of one run if nothing is drawn at random."""
    others, seen = [], _Randomness()
    for seed in range(SEED + 1, SEED + 1 + DRAWS):
        torch.manual_seed(seed)
        # Some samples set a seed themselves.
        with unittest.mock.patch("torch.manual_seed"), seen:
            others.append(_run_eagerly(sample, None).outputs)
        if not seen.was_drawn:
            break
    return others


class _Randomness(TorchDispatchMode):
    """Notices operators that draw random numbers."""

    was_drawn = False

    def __torch_dispatch__(self, func, _types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.was_drawn |= torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))


def _run_eagerly(sample: Sample, seed: int | None) -> Reference:
    if seed is not None:
        torch.manual_seed(seed)
    state = {key: value.clone() for key, value in sample.state_dict().items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outputs = sample(*(one.clone() for one in sample.inputs))
        differentiable = [
            k for k, one in enumerate(outputs) if one.requires_grad and one.is_floating_point()
        ]
        generator = torch.Generator().manual_seed(SEED)
        above = {
            k: torch.randn(outputs[k].shape, generator=generator, dtype=torch.float64).to(
                outputs[k].dtype
            )
            for k in differentiable
        }
        wanted = {key: one for key, one in sample.named_parameters() if one.requires_grad}
        gradients: dict[str, Array | None] = {}
        if differentiable and wanted:
            made = torch.autograd.grad(
                [outputs[k] for k in differentiable],
                list(wanted.values()),
                [above[k] for k in differentiable],
                allow_unused=True,
            )
            gradients = {
                key: None if one is None else _array(one)
                for key, one in zip(wanted, made, strict=True)
            }
    reference = Reference(
        tuple(_array(one) for one in outputs),
        {k: _array(one) for k, one in above.items()},
        gradients,
        False,
    )
    sample.load_state_dict(state)
    return reference


def _array(value: torch.Tensor) -> Array:
    if value._is_zerotensor():  # the gradient of a sign, which numpy cannot hold
        value = torch.zeros(value.shape, dtype=value.dtype)
    return value.detach().resolve_conj().resolve_neg().cpu().contiguous().numpy().copy()


def _compared(pairs: Sequence[tuple[Sample, Reference]], evaluate: Evaluate) -> list[Outcome]:
    batch = Batch([sample for sample, _ in pairs])
    inputs = [one for sample, _ in pairs for one in sample.inputs]
    program = _exported(batch, inputs)
    _check_promised_shapes(program, [one.shape for _, ref in pairs for one in ref.outputs])
    model = from_torch_export(program)
    start, above = 0, {}
    starts = []
    for _, reference in pairs:
        starts.append(start)
        above.update({start + k: gradient for k, gradient in reference.above.items()})
        start += len(reference.outputs)
    made = evaluate(model, [one.numpy() for one in inputs], above)
    return [
        _verdict(model, made, reference, start, f"samples.{k}.")
        for k, ((_, reference), start) in enumerate(zip(pairs, starts, strict=True))
    ]


def _check_promised_shapes(
    program: torch.export.ExportedProgram, wanted: Sequence[tuple[int, ...]]
) -> None:
    """torch.export promises shapes, which for a few operators are not those that PyTorch returns."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    promised = [tuple(values[name].shape) for name in program.graph_signature.user_outputs]
    for shape in promised:
        if not all(isinstance(length, int) for length in shape):
            raise NotExportableError(f"the shape {shape} depends on values")
    if promised != list(wanted):
        raise NotExportableError(f"torch.export promises {promised}, PyTorch returns {wanted}")


def _exported(batch: Batch, inputs: Sequence[torch.Tensor]) -> torch.export.ExportedProgram:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.export.export(batch, tuple(inputs), strict=False)
    except Exception as error:
        raise NotExportableError(f"torch.export: {error}") from error


def _verdict(
    model: ForwardModel, made: Evaluation, reference: Reference, start: int, prefix: str
) -> Outcome:
    count = len(reference.outputs)
    problems = [
        f"output {k}: {problem}"
        for k, (found, wanted) in enumerate(
            zip(made.outputs[start : start + count], reference.outputs, strict=True)
        )
        if (problem := _difference(found, wanted, reference))
    ]
    for key, wanted in reference.gradients.items():
        name = _own_name(model, prefix + key)
        found = made.gradients.get(name)
        if wanted is None:
            wanted = None if found is None else np.zeros_like(found)
        elif found is None:
            found = np.zeros_like(wanted)
        if found is None or wanted is None:
            continue
        if problem := _difference(found, wanted, reference):
            problems.append(f"gradient of {key}: {problem}")
    if problems:
        return Status.DIFFERENT, "; ".join(problems)[:500]
    return (Status.RANDOM if reference.is_random else Status.EQUAL), ""


def _own_name(model: ForwardModel, name: str) -> str:
    return name if name in model.parameters else identifier(name)


def _difference(found: Array, wanted: Array, reference: Reference) -> str | None:
    """How two tensors differ; None where they do not."""
    if found.shape != wanted.shape:
        return f"shape {found.shape}, not {wanted.shape}"
    if wanted.dtype.kind != found.dtype.kind:
        return f"{found.dtype}, not {wanted.dtype}"
    if reference.is_random or wanted.size == 0:
        return None
    if wanted.dtype.kind != "f":
        wrong = found != wanted
    else:
        tolerance = TOLERANCES.get(str(wanted.dtype), 1e-2)
        a, b = found.astype("float64"), wanted.astype("float64")
        finite = np.isfinite(b)
        scale = max(1.0, float(np.abs(b[finite]).max(initial=0.0)))
        with np.errstate(invalid="ignore"):
            close = np.abs(a - b) <= (
                tolerance * np.abs(b) + tolerance * 1e-2 * scale + reference.error
            )
        wrong = ~np.where(finite, close, (a == b) | (np.isnan(a) & np.isnan(b)))
    if not wrong.any():
        return None
    place = tuple(int(index) for index in np.argwhere(wrong)[0])
    return (
        f"{int(wrong.sum())} of {wrong.size} entries, at {place} {found[place]!s} instead of"
        f" {wanted[place]!s}"
    )
