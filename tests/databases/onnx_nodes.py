"""ONNX's own node tests, run through our importer and judged against their expected outputs.

``python -m tests.databases.onnx_walk`` judges what has no verdict yet and writes
``docs/operators/onnx.md``; with ``--fresh`` it judges all cases anew.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache

import numpy as np
import onnx
import tvm
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases
from onnx.reference import ReferenceEvaluator
from tvm import relax

from tests.vm import computed
from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.assemble import with_output
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.onnx.importer import import_model
from tvm_xengine.frontends.onnx.narrow_types import HELD_AS, numpy_type
from tvm_xengine.passes.lowering.lower_to_kernels import LowerToKernels
from tvm_xengine.relax_ir.forward_ops import read_forward_ops
from tvm_xengine.relax_ir.types import Array
from tvm_xengine.training.forward.evaluation import evaluation_module

FIXED_INPUTS: Mapping[str, Sequence[int]] = {
    "AffineGrid": (1,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "Clip": (1, 2),
    "Col2Im": (1, 2),
    "ConstantOfShape": (0,),
    "CumProd": (1,),
    "CumSum": (1,),
    "DFT": (1, 2),
    "Dropout": (1, 2),
    "Expand": (1,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "Loop": (0, 1),
    "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "NonMaxSuppression": (2, 3, 4),
    "OneHot": (1, 2),
    "Pad": (1, 2, 3),
    "Range": (0, 1, 2),
    "ReduceL1": (1,),
    "ReduceL2": (1,),
    "ReduceLogSum": (1,),
    "ReduceLogSumExp": (1,),
    "ReduceMax": (1,),
    "ReduceMean": (1,),
    "ReduceMin": (1,),
    "ReduceProd": (1,),
    "ReduceSum": (1,),
    "ReduceSumSquare": (1,),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "STFT": (1, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "SplitToSequence": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
}
"""Positions of the inputs that hold axes, shapes, bounds and the like: the test cases feed them,
the files of users hold them as initialisers."""


_UNITS = {"bfloat16": 2**-7, "float16": 2**-10, "float32": 2**-23}
"""Units in the last place. Two of them, or four of the largest element (of which sums are made),
may lie between results that were rounded after other steps."""

_DRAWN = ("Bernoulli", "RandomNormalLike", "RandomUniformLike")


class Status(Enum):
    """How a case ended."""

    EQUAL = "equal"
    REFUSED = "refused"
    DIFFERENT = "different"
    CRASHED = "crashed"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True)
class Case:
    """One node test.

    Attributes
    ----------
    operator
        The operator that the case tests; for a case whose node is expanded into the body of its
        function, the operator that was expanded.
    model
        The model of the case, the inputs of `FIXED_INPUTS` as initialisers.
    inputs, outputs
        The values that remain to be fed, and the expected results.
    outside
        Why no training engine can be expected to run it; empty if one can.
    """

    name: str
    operator: str
    model: onnx.ModelProto
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    rtol: float
    atol: float
    outside: str


@dataclass(frozen=True)
class Verdict:
    """How a case ended, and why."""

    name: str
    operator: str
    status: Status
    reason: str = ""


@cache
def all_cases() -> tuple[Case, ...]:
    """Every node test that the installed onnx brings, in the order of names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = {case.name: case for case in collect_testcases(None)}
    return tuple(_cases(found))


def _cases(found: Mapping[str, object]) -> Iterator[Case]:
    for name in sorted(found):
        case = found[name]
        origin = _unexpanded(name, found)
        operator = _tested_operator(origin.model.graph)  # type: ignore[attr-defined]
        fixed = _fixed_inputs(origin.model.graph)  # type: ignore[attr-defined]
        graph = case.model.graph  # type: ignore[attr-defined]
        ((inputs, outputs),) = case.data_sets  # type: ignore[attr-defined]
        outside = _outside(graph)
        model = onnx.ModelProto()
        model.CopyFrom(case.model)  # type: ignore[attr-defined]
        values = tuple(inputs) if outside else tuple(_fix(model.graph, inputs, fixed))
        yield Case(
            name,
            operator,
            model,
            values,
            tuple(outputs) if outside else tuple(_array(value) for value in outputs),
            float(case.rtol),  # type: ignore[attr-defined]
            float(case.atol),  # type: ignore[attr-defined]
            outside or _drawn(name, graph),
        )


def _unexpanded(name: str, found: Mapping[str, object]) -> object:
    """The case whose node a case holds expanded, else the case itself."""
    return found.get(name.split("_expanded")[0], found[name])


def _tested_operator(graph: onnx.GraphProto) -> str:
    operators = [node.op_type for node in graph.node]
    named = [op for op in operators if op.lower() in graph.name.lower().replace("_", "")]
    return max(named or operators, key=len)


def _fixed_inputs(graph: onnx.GraphProto) -> frozenset[str]:
    return frozenset(
        node.input[k]
        for node in graph.node
        for k in FIXED_INPUTS.get(node.op_type, ())
        if k < len(node.input) and node.input[k]
    )


def _fix(graph: onnx.GraphProto, inputs: Sequence[Array], fixed: frozenset[str]) -> Iterator[Array]:
    """Make initialisers of the inputs in `fixed`; yields the values of the others."""
    declared = list(graph.input)
    del graph.input[:]
    for info, value in zip(declared, inputs, strict=True):
        if info.name in fixed:
            graph.initializer.append(numpy_helper.from_array(_array(value), info.name))
        else:
            graph.input.append(info)
            yield _array(value)


def _array(value: object) -> Array:
    """A value of a case, narrow types in the type that the importer holds them in."""
    array = numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)
    return array.astype(_HELD_IN.get(array.dtype, array.dtype))


_HELD_IN = {
    numpy_type(narrow): helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(held))
    for narrow, held in HELD_AS.items()
}


def _outside(graph: onnx.GraphProto) -> str:
    """What keeps a case from being a tensor program."""
    for info in [*graph.input, *graph.output]:
        kind = info.type.WhichOneof("value")
        if kind != "tensor_type":
            return f"{info.name} is a {(kind or 'value without type').removesuffix('_type')}"
        if info.type.tensor_type.elem_type == TensorProto.STRING:
            return f"{info.name} holds strings"
    if any(node.op_type == "ImageDecoder" for node in graph.node):
        return "ImageDecoder reads files of images"
    return ""


def _drawn(name: str, graph: onnx.GraphProto) -> str:
    """What makes the expected values those of another random generator."""
    drawn = [node.op_type for node in graph.node if node.op_type in _DRAWN]
    if "training_dropout" in name and "zero_ratio" not in name:
        drawn.append("Dropout")
    return f"{drawn[0]} draws random numbers" if drawn else ""


def judge(case: Case) -> Verdict:
    """Import and run one case.  An abort inside TVM ends the process: see `walk`."""
    try:
        model = import_model(
            case.name, case.model, batch_size=None, train_norms=False, initialise_seed=None
        )
        if case.outside:
            return Verdict(case.name, case.operator, Status.NOT_APPLICABLE, case.outside)
    except UnsupportedModelError as error:
        if "contradicts itself" in str(error):
            return Verdict(case.name, case.operator, Status.CRASHED, _one_line(error))
        status = Status.NOT_APPLICABLE if case.outside else Status.REFUSED
        return Verdict(
            case.name, case.operator, status, _one_line(error).removeprefix(f"{case.name}: ")
        )
    except Exception as error:
        return Verdict(case.name, case.operator, Status.CRASHED, f"import: {_one_line(error)}")
    try:
        made = _run(model, case)
    except Exception as error:
        return Verdict(case.name, case.operator, Status.CRASHED, f"build: {_one_line(error)}")
    reason = _difference(case, case.outputs, made)
    if reason and _is_written_out(case):
        # Written out in float32, a function may round more than the expected values allow.
        reason = _difference(case, _by_reference(case), made)
    status = Status.DIFFERENT if reason else Status.EQUAL
    return Verdict(case.name, case.operator, status, reason)


def _is_written_out(case: Case) -> bool:
    return "_expanded" in case.name


def _by_reference(case: Case) -> list[Array]:
    """What ONNX's reference makes of the same graph."""
    names = [info.name for info in case.model.graph.input]
    made = ReferenceEvaluator(case.model).run(None, dict(zip(names, case.inputs, strict=True)))
    return [np.asarray(value) for value in made]


def _one_line(error: BaseException) -> str:
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    found = lines[-1] if lines and lines[0].startswith("Traceback") else (lines or [""])[0]
    named = (
        found if isinstance(error, UnsupportedModelError) else f"{type(error).__name__}: {found}"
    )
    return named[:300]


def _run(model: ForwardModel, case: Case) -> list[Array]:
    """The outputs of the forward function, lowered as a training step is."""
    declared = [info.name for info in case.model.graph.input]
    if len(declared) != len(model.input_names):
        raise AssertionError(f"the case feeds {declared}, the model reads {model.input_names}")
    mod = model.mod if _trains(case) else evaluation_module(model)
    source = read_forward_ops(mod["main"])
    values = [*case.inputs, *model.state.values()]
    by_param = dict(zip(source.params, values, strict=True))
    known = [_known(value, by_param) for value in source.outputs]
    if all(value is None for value in known):
        return _computed(mod, values, lowered=not _trains(case))
    return [
        _run(with_output(model, k), case)[0] if value is None else value
        for k, value in enumerate(known)
    ]


def _known(value: relax.Expr, by_param: Mapping[relax.Var, Array]) -> Array | None:
    """An output that no operator makes."""
    if isinstance(value, tvm.ir.GenericConst):
        return value.value.numpy()
    return by_param.get(value)


def _trains(case: Case) -> bool:
    return any(
        attribute.name == "training_mode" and attribute.i
        for node in case.model.graph.node
        for attribute in node.attribute
    )


def _computed(mod: tvm.IRModule, values: Sequence[Array], *, lowered: bool) -> list[Array]:
    """All results of a module on the VM."""
    mod = LowerToKernels("main")(mod) if lowered else mod
    return computed(mod, values)


def _difference(case: Case, outputs: Sequence[Array], made: Sequence[Array]) -> str:
    """Where results are not as expected; empty if they are."""
    if len(made) != len(outputs):
        return f"{len(made)} outputs, expected {len(outputs)}"
    for position, (ours, expected) in enumerate(zip(made, outputs, strict=True)):
        wanted = np.asarray(expected)
        if ours.shape != wanted.shape:
            return f"output {position} has shape {ours.shape}, expected {wanted.shape}"
        if ours.dtype != wanted.dtype:
            return f"output {position} is {ours.dtype}, expected {wanted.dtype}"
        if not _close(ours, wanted, case):
            return f"output {position} has other values"
    return ""


def _close(ours: Array, wanted: Array, case: Case) -> bool:
    if wanted.dtype.kind in "biu":
        return bool((ours == wanted).all())
    left, right = ours.astype(np.float64), wanted.astype(np.float64)
    unit = _UNITS.get(str(wanted.dtype), 0.0)
    largest = float(np.abs(right[np.isfinite(right)]).max(initial=0.0))
    rtol, atol = max(case.rtol, 2 * unit), max(case.atol, 4 * unit * largest)
    return bool(np.allclose(left, right, rtol=rtol, atol=atol, equal_nan=True))
