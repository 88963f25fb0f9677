"""Functions of one number, applied to every element of a tensor, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tvm_xengine.kernels.library.call import LibraryCall
from tvm_xengine.kernels.onednn.descriptors import MemoryDesc, PrimitiveDesc
from tvm_xengine.kernels.onednn.enumerators import (
    ARG_DIFF_DST,
    ARG_DIFF_SRC,
    ARG_DST,
    ARG_SRC,
    ELTWISE_ABS,
    ELTWISE_EXP,
    ELTWISE_EXP_BY_RESULT,
    ELTWISE_GELU_ERF,
    ELTWISE_GELU_TANH,
    ELTWISE_LOG,
    ELTWISE_LOGISTIC,
    ELTWISE_LOGISTIC_BY_RESULT,
    ELTWISE_RELU,
    ELTWISE_RELU_BY_RESULT,
    ELTWISE_SOFT_RELU,
    ELTWISE_SQRT,
    ELTWISE_SQRT_BY_RESULT,
    ELTWISE_SQUARE,
    ELTWISE_SWISH,
    ELTWISE_TANH,
    ELTWISE_TANH_BY_RESULT,
    FORWARD_INFERENCE,
    FORWARD_TRAINING,
)
from tvm_xengine.kernels.onednn.library import OnednnLibrary
from tvm_xengine.kernels.onednn.program import Placed, Program, ProgramBuilder


@dataclass(frozen=True)
class _Function:
    """A function of oneDNN.

    Attributes
    ----------
    backward
        What its gradient is called where that reads the result; otherwise it reads the operand.
    alpha
        Its factor: a number, or the option of the kernel that has it.
    """

    algorithm: int
    backward: int | None = None
    alpha: float | str = 0.0


_FUNCTIONS: Mapping[str, _Function] = {
    "relu": _Function(ELTWISE_RELU, ELTWISE_RELU_BY_RESULT),
    "leakyrelu": _Function(ELTWISE_RELU, alpha="alpha"),
    "tanh": _Function(ELTWISE_TANH, ELTWISE_TANH_BY_RESULT),
    "sigmoid": _Function(ELTWISE_LOGISTIC, ELTWISE_LOGISTIC_BY_RESULT),
    "exp": _Function(ELTWISE_EXP, ELTWISE_EXP_BY_RESULT),
    "sqrt": _Function(ELTWISE_SQRT, ELTWISE_SQRT_BY_RESULT),
    "log": _Function(ELTWISE_LOG),
    "abs": _Function(ELTWISE_ABS),
    "square": _Function(ELTWISE_SQUARE),
    "gelu": _Function(ELTWISE_GELU_ERF),
    "gelu_tanh": _Function(ELTWISE_GELU_TANH),
    "silu": _Function(ELTWISE_SWISH, alpha=1.0),
    "softplus": _Function(ELTWISE_SOFT_RELU, alpha="beta"),
}

_BACKWARD = "_backward"

_FAR = 20.0
"""Beyond this a softplus is its operand; oneDNN's function has no threshold before."""

ELEMENTWISE = frozenset({*_FUNCTIONS, *(name + _BACKWARD for name in _FUNCTIONS)})
"""Names of the training kernels."""


def elementwise(call: LibraryCall, library: OnednnLibrary) -> Program | None:
    """A function of the only input, or with ``_backward`` the gradient of its operand.

    The gradient is made of that of the result, and of operand or result.
    """
    if any(shape != call.shapes[0] for shape in call.shapes) or 0 in call.shapes[0]:
        return None
    if float(str(call.option.get("threshold", _FAR))) < _FAR:
        return None
    numbers = library.plain((math.prod(call.shapes[0]),))
    function = _FUNCTIONS[call.operation.removesuffix(_BACKWARD)]
    builder = ProgramBuilder(library)
    if not call.operation.endswith(_BACKWARD):
        forward = _describe(library, function.algorithm, numbers, _alpha(call, function))
        if forward is None or not forward.is_good:
            return None
        places = {ARG_SRC: builder.part(0, 0, numbers), ARG_DST: builder.part(1, 0, numbers)}
        builder.run(forward, places)
        return builder.program()
    gradient, read, made = (builder.part(k, 0, numbers) for k in range(3))
    is_done = apply_backward(
        builder, library, function, gradient, read, made, alpha=_alpha(call, function)
    )
    return builder.program() if is_done else None


def apply(
    builder: ProgramBuilder,
    library: OnednnLibrary,
    algorithm: int,
    source: Placed,
    target: Placed,
    factors: tuple[float, float] = (0.0, 0.0),
) -> None:
    """A function of every element; both may be the same tensor."""
    primitive = _describe(library, algorithm, source.desc, *factors, kind=FORWARD_INFERENCE)
    assert primitive is not None
    builder.run(primitive, {ARG_SRC: source, ARG_DST: target})


RELU = _FUNCTIONS["relu"]


def apply_backward(
    builder: ProgramBuilder,
    library: OnednnLibrary,
    function: _Function,
    gradient: Placed,
    read: Placed,
    made: Placed,
    *,
    alpha: float = 0.0,
) -> bool:
    """The gradient of an operand from that of the result, and from operand or result.

    Returns
    -------
    False
        Where oneDNN has no good implementation; nothing was added then.
    """
    algorithm = function.algorithm if function.backward is None else function.backward
    desc = gradient.desc
    forward = _describe(library, algorithm, desc, alpha)
    if forward is None:
        return False
    backward = library.describe_good(
        "eltwise_backward",
        algorithm,
        desc,
        desc,
        desc,
        alpha,
        0.0,
        forward,
        attributes=library.attributes(),
    )
    if backward is None:
        return False
    source = ARG_SRC if function.backward is None else ARG_DST
    builder.run(backward, {ARG_DIFF_DST: gradient, source: read, ARG_DIFF_SRC: made})
    return True


def _describe(
    library: OnednnLibrary,
    algorithm: int,
    desc: MemoryDesc,
    alpha: float = 0.0,
    beta: float = 0.0,
    *,
    kind: int = FORWARD_TRAINING,
) -> PrimitiveDesc | None:
    return library.describe(
        "eltwise_forward",
        kind,
        algorithm,
        desc,
        desc,
        alpha,
        beta,
        attributes=library.attributes(),
    )


def _alpha(call: LibraryCall, function: _Function) -> float:
    if isinstance(function.alpha, float):
        return function.alpha
    return float(str(call.option[function.alpha]))
