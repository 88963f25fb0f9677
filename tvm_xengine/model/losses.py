"""Losses by name, as objects of ours, or written in PyTorch."""

from __future__ import annotations

import ast
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import tvm
from tvm import relax

from tvm_xengine.checks.arguments import checked
from tvm_xengine.checks.names import meant
from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.relax_ir.forward_ops import outputs_of
from tvm_xengine.relax_ir.types import static_shape
from tvm_xengine.training.losses import (
    BINARY_CROSS_ENTROPY,
    MEAN_ABSOLUTE_ERROR,
    MEAN_SQUARED_ERROR,
    CrossEntropy,
    Dice,
    FunctionLoss,
    Loss,
)
from tvm_xengine.training.model_loss import ModelLoss

if TYPE_CHECKING:
    import torch

_logger = logging.getLogger(__name__)

LossFunction = Callable[..., "torch.Tensor"]
"""A loss written in PyTorch: ``loss(outputs, *targets) -> scalar``."""

LossLike = str | Loss | LossFunction | None
"""What stands for a loss: a name, an object of ours, a PyTorch function or module, or nothing."""

_KERNELS: dict[str, Callable[..., Loss]] = {
    "cross_entropy": lambda label_smoothing=0.0, ignore_index=-100, weight=None, axis=None: (
        CrossEntropy(
            axis=axis,
            label_smoothing=label_smoothing,
            ignore_index=ignore_index,
            class_weights=None if weight is None else tuple(float(w) for w in weight),
        )
    ),
    "mse": lambda: MEAN_SQUARED_ERROR,
    "l1": lambda: MEAN_ABSOLUTE_ERROR,
    "bce_with_logits": lambda: BINARY_CROSS_ENTROPY,
    "dice": lambda smooth=1.0: Dice(smooth),
}
"""Losses that have kernels of their own."""

_FUNCTIONS = {
    "mse": "mse_loss",
    "l1": "l1_loss",
    "smooth_l1": "smooth_l1_loss",
    "huber": "huber_loss",
    "bce": "binary_cross_entropy",
    "bce_with_logits": "binary_cross_entropy_with_logits",
    "nll": "nll_loss",
    "kl_div": "kl_div",
    "poisson_nll": "poisson_nll_loss",
    "soft_margin": "soft_margin_loss",
    "multilabel_soft_margin": "multilabel_soft_margin_loss",
    "multi_margin": "multi_margin_loss",
    "cross_entropy": "cross_entropy",
}
"""Names of losses in ``torch.nn.functional``."""

LOSS_NAMES = tuple(sorted({*_KERNELS, *_FUNCTIONS}))
"""The names that `named_loss` knows."""

_CLASS_TARGETS = (
    "nll",
    "multi_margin",
    "cross_entropy",
    "NLLLoss",
    "MultiMarginLoss",
    "CrossEntropyLoss",
)
"""Losses whose targets are class numbers, by our names and those of PyTorch's modules."""

_SQUASHES = {"relax.nn.softmax": "a softmax", "relax.sigmoid": "a sigmoid"}
"""Operators that make probabilities of scores."""

_SCORES = ("relax.matmul", "relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d")
"""Operators of layers of weights, whose outputs have no bounds."""

_LOG_PROBABILITIES = ("logarithms of probabilities", "cross_entropy or log_softmax")
_OF_PROBABILITIES = {
    "bce": ("probabilities", "bce_with_logits or a sigmoid"),
    "BCELoss": ("probabilities", "BCEWithLogitsLoss or a sigmoid"),
    "nll": _LOG_PROBABILITIES,
    "NLLLoss": _LOG_PROBABILITIES,
    "kl_div": ("logarithms of probabilities", "log_softmax"),
    "KLDivLoss": ("logarithms of probabilities", "log_softmax"),
}
"""Losses that take no scores, by our names and those of PyTorch: what they take, and what to do."""

_TYPICAL = "cross_entropy (classes), mse or huber (numbers), bce_with_logits (yes or no)"


@checked
def named_loss(name: str, **options: Any) -> Loss | LossFunction:
    """The loss of that name, with PyTorch's options for it.

    Parameters
    ----------
    name
        Such as ``cross_entropy``, ``mse`` or ``huber``, also with ``_loss`` behind it.
    options
        Such as ``label_smoothing``, ``ignore_index`` and ``weight`` of ``cross_entropy``, ``beta``
        of ``smooth_l1``, ``delta`` of ``huber``, ``reduction``. Beside PyTorch's, ``axis`` of
        ``cross_entropy`` is that of the classes: -1 for outputs (batch, tokens, classes).

    Raises
    ------
    ValueError
        If the name or an option is unknown.
    """
    key = name.replace("-", "_").removesuffix("_loss")
    if key not in LOSS_NAMES:
        raise ValueError(
            f"unknown loss {name!r}, expected one of {', '.join(LOSS_NAMES)}{meant(key, LOSS_NAMES)}"
        )
    if key in _KERNELS:
        try:
            return _KERNELS[key](**options)
        except TypeError:
            if key not in _FUNCTIONS:
                raise ValueError(f"the loss {name} has no options {sorted(options)}") from None
    return _torch_loss(key, options)


def parsed_loss(text: str) -> Loss | LossFunction:
    """The loss that a text names, with options: ``cross_entropy(label_smoothing=0.1)``.

    Raises
    ------
    ValueError
        If the text is no name with options, or the name or an option is unknown.
    """
    name, bracket, rest = text.strip().partition("(")
    if not bracket:
        return named_loss(name)
    try:
        call = ast.parse(f"loss({rest}", mode="eval").body
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)) or call.args:
            raise SyntaxError
        options = {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
    except (SyntaxError, ValueError):
        raise ValueError(
            f"expected a loss such as cross_entropy(label_smoothing=0.1), got {text!r}"
        ) from None
    return named_loss(name, **options)


@dataclass(frozen=True)
class TorchLoss:
    """A function of ``torch.nn.functional`` with options."""

    name: str
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "__name__", self.name)

    def __call__(self, prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        from torch.nn import functional

        made: torch.Tensor = getattr(functional, _FUNCTIONS[self.name])(
            prediction, target, **self.options
        )
        return made


def in_pytorch(loss: object) -> LossFunction | None:
    """The loss, if PyTorch can compute it from outputs and targets alone; else None.

    A function of the user's may read what trains elsewhere.
    """
    is_plain = isinstance(loss, TorchLoss) or type(loss).__module__ == "torch.nn.modules.loss"
    return cast(LossFunction, loss) if is_plain else None


def _torch_loss(name: str, options: dict[str, Any]) -> LossFunction:
    import inspect

    from torch.nn import functional

    known = inspect.signature(getattr(functional, _FUNCTIONS[name])).parameters
    if unknown := [option for option in options if option not in known]:
        raise ValueError(f"the loss {name} has no options {unknown}; it has {', '.join(known)}")
    return TorchLoss(name, options)


def resolved(loss: LossLike) -> Loss | LossFunction | None:
    """The loss that an argument stands for; PyTorch's modules of losses with kernels become those."""
    if isinstance(loss, str):
        return named_loss(loss)
    if isinstance(loss, type):
        name = loss.__name__
        raise TypeError(f"expected a loss, got the class {name}; give an instance: {name}()")
    if type(loss).__module__.startswith("torch.nn.modules.loss"):
        return _from_torch_module(loss)
    if not (loss is None or is_kernel_loss(loss) or callable(loss)):
        raise TypeError(
            "expected the name of a loss, one such as CrossEntropy(), or a function of outputs and"
            f" targets, got {loss!r}"
        )
    return loss


def over_probabilities(
    loss: Loss | LossFunction | None, targets: object
) -> Loss | LossFunction | None:
    """The loss; cross-entropy as PyTorch's function where examples of targets are probabilities."""
    (target,) = targets if isinstance(targets, list | tuple) and len(targets) == 1 else (targets,)
    if not isinstance(loss, CrossEntropy) or loss.axis is not None:
        return loss
    if "float" not in str(getattr(target, "dtype", "")):
        return loss
    import torch

    weights = loss.class_weights
    options = {
        "label_smoothing": loss.label_smoothing,
        "weight": None if weights is None else torch.tensor(weights),
    }
    return TorchLoss("cross_entropy", options)


def takes_outputs_alone(loss: Callable[..., object]) -> bool:
    """Whether a loss compares the outputs with nothing, such as that of triplets."""
    import inspect

    try:
        parameters = inspect.signature(loss).parameters.values()
    except (TypeError, ValueError):  # of a function in C
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return len(parameters) == 1 and all(one.kind in positional for one in parameters)


def _from_torch_module(loss: Any) -> Loss | LossFunction:
    kind = type(loss).__name__
    if getattr(loss, "reduction", "mean") != "mean":
        return cast(LossFunction, loss)
    if kind == "CrossEntropyLoss":
        weight = None if loss.weight is None else loss.weight.tolist()
        return named_loss(
            "cross_entropy",
            label_smoothing=loss.label_smoothing,
            ignore_index=loss.ignore_index,
            weight=weight,
        )
    plain: dict[str, Loss | LossFunction] = {
        "MSELoss": MEAN_SQUARED_ERROR,
        "L1Loss": MEAN_ABSOLUTE_ERROR,
    }
    return plain[kind] if kind in plain else cast(LossFunction, loss)


def is_kernel_loss(loss: object) -> bool:
    """Whether a loss is an object of ours, which needs no PyTorch."""
    return hasattr(loss, "labels_type")


def as_kernel_loss(loss: Loss | LossFunction, model: ForwardModel, target: object = None) -> Loss:
    """A loss for a model that is no PyTorch module; functions are exported for its output.

    Parameters
    ----------
    target
        Example of the targets; None takes class numbers for losses over classes, and else
        a tensor like the output.
    """
    if is_kernel_loss(loss):
        return loss  # type: ignore[return-value]
    import torch

    from tvm_xengine.frontends.torch.module import trace_loss

    shape = _shape_of_output(model)
    dtype = str(outputs_of(model.main)[0].ty.dtype)
    prediction = torch.zeros(shape, dtype=getattr(torch, dtype))
    given = (
        example_target(loss, prediction) if target is None else torch.as_tensor(np.asarray(target))
    )
    return FunctionLoss(trace_loss(loss, prediction, given), in_pytorch(loss))  # type: ignore[arg-type]


def example_target(loss: object, prediction: torch.Tensor) -> torch.Tensor:
    """Class numbers for losses over classes, and else a tensor like the output."""
    name = getattr(loss, "__name__", type(loss).__name__)
    if name not in _CLASS_TARGETS:
        return prediction.new_zeros(prediction.shape)
    shape = (prediction.shape[0], *prediction.shape[2:]) if prediction.ndim > 1 else ()
    return prediction.new_zeros(shape).long()


def inferred_loss(model: ForwardModel) -> Loss:
    """The loss of an output that can hardly be meant otherwise.

    A scalar is the loss itself. One tensor (batch, classes) of at least two classes, unlike the inputs
    in shape, is compared by cross-entropy.

    Raises
    ------
    UnsupportedModelError
        For all other outputs; the message says what to do.
    """
    shape = _shape_of_output(model)
    if not shape and "float" in str(outputs_of(model.main)[0].ty.dtype):
        return ModelLoss()
    alike = shape in model.input_shapes
    if len(shape) == 2 and shape[1] > 1 and not alike:
        return CrossEntropy()
    like = " like an input" if alike else ""
    raise UnsupportedModelError(
        f"{model.name} returns a tensor of shape {shape}{like}, for which no loss is plain; say which"
        f" one is meant, such as {_TYPICAL}"
    )


def check_loss_fits(loss: Loss, model: ForwardModel) -> None:
    """Refuse several outputs, and cross-entropy over a single class, which is 0 for any output.

    Raises
    ------
    UnsupportedModelError
        The message says what to do.
    """
    if isinstance(loss, ModelLoss):
        return
    shape = _shape_of_output(model)
    if isinstance(loss, CrossEntropy) and len(shape) > 1:
        classes = shape[loss.class_axis(len(shape))]
        if classes == 1:
            raise UnsupportedModelError(
                f"{model.name} returns {shape}: cross-entropy over one class is always 0; use mse or"
                " huber for numbers, bce_with_logits for yes or no"
            )
    _warn_of_probabilities(loss, model)


def hint_of_axis(loss: Loss, model: ForwardModel) -> str:
    """What to do where labels do not fit an output whose classes may be its last axis; else empty."""
    if not isinstance(loss, CrossEntropy) or loss.axis is not None:
        return ""
    shape = _shape_of_output(model)
    if len(shape) < 3:
        return ""
    return (
        f"the loss takes axis 1 of the output {shape} for the classes, as PyTorch does; if they are the last"
        " axis, ask for cross_entropy(axis=-1)"
    )


def _warn_of_probabilities(loss: Loss, model: ForwardModel) -> None:
    """Losses of scores squash these themselves; to do it twice trains slowly, and to a worse loss."""
    if isinstance(loss, CrossEntropy):
        name = "cross_entropy"
    elif loss is BINARY_CROSS_ENTROPY:
        name = "bce_with_logits"
    else:
        return
    if (layer := _SQUASHES.get(_last_ops(model)[0])) is not None:
        _logger.warning(
            "%s ends in %s, and the loss %s takes scores, which it makes probabilities itself; train the"
            " model without that layer",
            *(model.name, layer, name),
        )


def warn_of_scores(loss: object, model: ForwardModel) -> None:
    """Tell where a loss of probabilities gets scores, of which PyTorch refuses some and takes others."""
    name = getattr(loss, "__name__", type(loss).__name__)
    if name not in _OF_PROBABILITIES:
        return
    last, before = _last_ops(model)
    if last in _SCORES or (last == "relax.add" and before in _SCORES):
        _logger.warning(
            "%s ends in a layer of weights, which makes scores, and the loss %s takes %s; use %s",
            *(model.name, name, *_OF_PROBABILITIES[name]),
        )


def _last_ops(model: ForwardModel) -> tuple[str, str]:
    """The operator that makes the output, and the one that makes its first operand; empty where none does."""
    bindings = [one for block in model.main.body.blocks for one in block.bindings]
    made = {one.var: one.value for one in bindings}

    def maker(value: relax.Expr) -> relax.Expr:
        while isinstance(value, relax.Var) and value in made:
            value = made[value]
        return value

    last = maker(outputs_of(model.main)[0])
    before = maker(last.args[0]) if isinstance(last, relax.Call) and last.args else last
    return _name_of_op(last), _name_of_op(before)


def _name_of_op(value: relax.Expr) -> str:
    return str(value.op.name) if isinstance(getattr(value, "op", None), tvm.ir.Op) else ""


def _shape_of_output(model: ForwardModel) -> tuple[int, ...]:
    outputs = outputs_of(model.main)
    if len(outputs) != 1:
        raise UnsupportedModelError(
            f"{model.name} returns {len(outputs)} tensors, and a loss by name is made of one; for a"
            " PyTorch module give a function, such as loss=lambda outputs, labels:"
            " F.cross_entropy(outputs[0], labels), with example_targets; of another model choose one"
            " output with output=0 or --output-index 0"
        )
    return static_shape(outputs[0].ty)
