"""Comparing results and gradients of drawn cases with PyTorch and with finite differences."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import tvm
from tvm import relax

from tests.training.cases.case import DTYPE, Array, Case
from tests.vm import reference_vm
from tvm_xengine.relax_ir.forward_ops import ForwardOps, read_forward_ops
from tvm_xengine.training.differentiate import Randomness, emit_forward
from tvm_xengine.training.emitter import Emitter
from tvm_xengine.training.forward.simplify import simplified

TOLERANCE = 1e-9
"""For the comparison with PyTorch, relative to the largest entry of the tensor (or to one)."""

DIFFERENCE_TOLERANCE = 2e-6
"""For the comparison with finite differences."""

_DISTANCE = 1e-5

Gradients = Mapping[str, Array]


@dataclass(frozen=True)
class Checked:
    """What a batch of cases gave.

    Attributes
    ----------
    ops
        Names of all ops that were differentiated, before and after simplification.
    errors
        One sentence for each tensor that is wrong.
    """

    ops: frozenset[str]
    errors: tuple[str, ...]


def check_cases(cases: Sequence[tuple[str, Case]]) -> Checked:
    """Compile named cases into one function, and compare every result and gradient."""
    source = read_forward_ops(_joined([case for _, case in cases])).live()
    reduced = simplified(source)
    run = _Run(reduced, [case for _, case in cases])
    errors = [
        f"{name}: {error}\n  {case_text(source, position, case)}"
        for position, (name, case) in enumerate(cases)
        for error in _errors(run, position, case)
    ]
    ops = frozenset(op.op for part in (source, reduced) for op in part.ops)
    return Checked(ops, tuple(errors))


def case_text(source: ForwardOps, position: int, case: Case) -> str:
    """The calls of a case and the shapes of its operands."""
    own = set(case.operands)
    calls: list[str] = []
    needed = {source.outputs[position]}
    for op in reversed(source.ops):
        if any(result in needed for result in op.results):
            needed.update(read for read in op.operands if isinstance(read, relax.Var))
            calls.insert(0, f"{op.op}({_attributes(op.call)})")
    shapes = ", ".join(f"{name} {case.operands[name].shape}" for name in sorted(own))
    return f"{'; '.join(calls)} of {shapes}"


def _attributes(call: relax.Call) -> str:
    names = [name for name in dir(call.attrs) if not name.startswith("_")]
    values = {name: getattr(call.attrs, name) for name in names}
    written = [f"{name}={value}" for name, value in values.items() if not callable(value)]
    rest = [str(argument) for argument in call.args if not hasattr(argument.ty, "dtype")]
    return ", ".join([*rest, *written])


def _joined(cases: Sequence[Case]) -> relax.Function:
    builder = relax.BlockBuilder()
    variables = [
        {
            name: relax.Var(f"{name}_{position}", relax.TensorType(value.shape, str(value.dtype)))
            for name, value in case.operands.items()
        }
        for position, case in enumerate(cases)
    ]
    params = [variable for group in variables for variable in group.values()]
    with builder.function("main", params=params):
        with builder.dataflow():
            results = [
                builder.emit(case.operator(*group.values()))
                for case, group in zip(cases, variables, strict=True)
            ]
            output = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(output)
    return builder.get()["main"]


class _Run:
    """A compiled function from operands and gradients of results to results and gradients."""

    def __init__(self, source: ForwardOps, cases: Sequence[Case]) -> None:
        self._cases = cases
        random = np.random.default_rng(0)
        shapes = [[int(extent) for extent in output.ty.shape] for output in source.outputs]
        self.cotangents = [random.standard_normal(shape).astype(DTYPE) for shape in shapes]
        self._trained = [
            param
            for param, (case, name) in zip(source.params, self._operands(), strict=True)
            if _needs_gradient(case, name)
        ]
        self._call = self._compiled(source)
        self.results, self._gradients = self._split(self._call(self._values()))

    def gradients(self, position: int) -> Gradients:
        """Gradients of the operands of one case."""
        names = [name for case, name in self._operands_at() if case == position]
        case = self._cases[position]
        found = [gradient for at, gradient in self._gradients if at == position]
        return dict(zip((n for n in names if _needs_gradient(case, n)), found, strict=True))

    def moved(self, name: str, direction: int) -> list[Array]:
        """The results with operand `name` of every case moved along its direction."""
        values = [
            value + direction * _DISTANCE * along(value)
            if own == name and _needs_gradient(case, own)
            else value
            for value, (case, own) in zip(self._values(), self._operands(), strict=True)
        ]
        return self._split(self._call(values))[0]

    def _operands(self) -> Iterator[tuple[Case, str]]:
        return ((case, name) for case in self._cases for name in case.operands)

    def _operands_at(self) -> Iterator[tuple[int, str]]:
        return ((at, name) for at, case in enumerate(self._cases) for name in case.operands)

    def _values(self) -> list[Array]:
        return [value for case in self._cases for value in case.operands.values()]

    def _split(self, made: list[Array]) -> tuple[list[Array], list[tuple[int, Array]]]:
        count = len(self._cases)
        owners = [at for at, name in self._operands_at() if _needs_gradient(self._cases[at], name)]
        return made[:count], list(zip(owners, made[count:], strict=True))

    def _compiled(self, source: ForwardOps) -> "_Compiled":
        builder = relax.BlockBuilder()
        emitter = Emitter(builder)
        values = {param: relax.Var(param.name, param.ty) for param in source.params}
        seeds = [
            relax.Var(f"cotangent_{k}", relax.TensorType(value.shape, DTYPE))
            for k, value in enumerate(self.cotangents)
        ]
        counters = [relax.Var(name, relax.TensorType((), "int32")) for name in ("seed", "step")]
        with builder.function("main", params=[*values.values(), *seeds, *counters]):
            with builder.dataflow():
                tape = emit_forward(emitter, source, values, self._trained, Randomness(*counters))
                pulled = dict(tape.pull_back(emitter, dict(enumerate(seeds))))
                gradients = [
                    pulled[param]
                    if param in pulled
                    else emitter.bind(relax.op.zeros(param.ty.shape, DTYPE), "zeros")
                    for param in self._trained
                ]
                fields = [*tape.outputs, *gradients]
                output = builder.emit_output(relax.Tuple(fields))
            builder.emit_func_output(output)
        return _Compiled(builder.get(), self.cotangents)


class _Compiled:
    """A module built as fast as possible."""

    def __init__(self, mod: tvm.IRModule, cotangents: Sequence[Array]) -> None:
        mod = relax.transform.DeadCodeElimination(["main"])(mod)
        self._main = reference_vm(mod)["main"]
        self._fixed = [*cotangents, np.array(3, "int32"), np.array(5, "int32")]

    def __call__(self, values: Sequence[Array]) -> list[Array]:
        tensors = (tvm.runtime.tensor(np.array(v, order="C")) for v in [*values, *self._fixed])
        return [made.numpy() for made in self._main(*tensors)]


def along(value: Array) -> Array:
    """The direction in which an operand is moved."""
    return np.random.default_rng(value.size).standard_normal(value.shape)


def _needs_gradient(case: Case, name: str) -> bool:
    return case.operands[name].dtype == DTYPE and name not in case.fixed


def _errors(run: _Run, position: int, case: Case) -> Iterator[str]:
    gradients = run.gradients(position)
    if case.reference is not None:
        yield from _against_torch(run, position, case, gradients)
    if case.smooth:
        yield from _against_differences(run, position, gradients)


def _against_torch(run: _Run, position: int, case: Case, gradients: Gradients) -> Iterator[str]:
    assert case.reference is not None
    tensors = {name: torch.from_numpy(value.copy()) for name, value in case.operands.items()}
    for name in gradients:
        tensors[name].requires_grad_()
    expected = case.reference(*tensors.values())
    found = run.results[position]
    if tuple(expected.shape) != found.shape:
        yield f"the result has the shape {found.shape}, in PyTorch {tuple(expected.shape)}"
        return
    if (error := _distance(found, expected.detach().numpy())) > TOLERANCE:
        yield f"the result is {error:.1e} off PyTorch's"
    if expected.requires_grad:
        expected.backward(torch.from_numpy(run.cotangents[position]))
    for name, gradient in gradients.items():
        wanted = tensors[name].grad
        reference = np.zeros_like(gradient) if wanted is None else wanted.numpy()
        if (error := _distance(gradient, reference)) > TOLERANCE:
            yield f"the gradient of {name} is {error:.1e} off PyTorch's"


def _against_differences(run: _Run, position: int, gradients: Gradients) -> Iterator[str]:
    cotangent = run.cotangents[position]
    for name, gradient in gradients.items():
        ahead, behind = (run.moved(name, direction)[position] for direction in (1, -1))
        measured = ((ahead - behind) * cotangent).sum() / (2 * _DISTANCE)
        direction = along(run._cases[position].operands[name])
        predicted = (gradient * direction).sum()
        scale = max(1.0, float(np.abs(gradient * direction).sum()))
        if not abs(measured - predicted) <= DIFFERENCE_TOLERANCE * scale:
            yield f"along {name} it rises by {measured}, the gradient says {predicted}"


def _distance(found: Array, wanted: Array) -> float:
    if not (np.isfinite(found).all() and np.isfinite(wanted).all()):
        return float("inf")
    return float(np.abs(found - wanted).max(initial=0) / max(1.0, np.abs(wanted).max(initial=0)))
