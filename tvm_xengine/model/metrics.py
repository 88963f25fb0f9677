"""How good predictions are: the loss that was trained, and the accuracy of classes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.model.source import as_array
from tvm_xengine.relax_ir.forward_ops import outputs_of
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


def returns_scalar(model: ForwardModel) -> bool:
    """Whether the only tensor that a model returns is a scalar: its loss, over a whole batch."""
    outputs = outputs_of(model.main)
    return len(outputs) == 1 and not outputs[0].ty.ndim


def metrics_of_loss(loss: Loss, evaluation: ForwardModel) -> dict[str, Callable[..., float]]:
    """Metrics of predictions and targets that go with a loss: the loss itself, and the accuracy of classes.

    Empty for functions of the user's, which may read what trains elsewhere.
    """
    if isinstance(loss, CrossEntropy):
        return {
            "loss": lambda scores, labels: _cross_entropy(scores, labels, loss),
            "accuracy": lambda scores, labels: _accuracy(scores, labels, loss),
        }
    if loss is MEAN_SQUARED_ERROR:
        return {"loss": lambda x, t: float(np.mean((x - t) ** 2))}
    if loss is MEAN_ABSOLUTE_ERROR:
        return {"loss": lambda x, t: float(np.mean(np.abs(x - t)))}
    if loss is BINARY_CROSS_ENTROPY:
        return {
            "loss": lambda x, t: float(np.mean(np.logaddexp(0, x) - x * t)),
            "accuracy": lambda x, t: float(np.mean((x > 0) == (t > 0.5))),
        }
    if isinstance(loss, Dice):
        return {"loss": lambda x, t: _dice(x, t, loss.smooth)}
    if isinstance(loss, ModelLoss) and returns_scalar(evaluation):
        return {"loss": lambda value, *_: float(value)}
    if isinstance(loss, FunctionLoss | ModelLoss) and loss.in_pytorch is not None:
        return {"loss": partial(_in_pytorch, loss.in_pytorch)}
    return {}


def _in_pytorch(loss: Callable[..., Any], outputs: Any, *targets: Any) -> float:
    import torch

    with torch.no_grad():
        tensors = [torch.from_numpy(np.array(as_array(one))) for one in (outputs, *targets)]
        return float(loss(*tensors))


def _dice(scores: np.ndarray[Any, Any], labels: Any, smooth: float) -> float:
    """As `tvm_xengine.kernels.te.losses.loss.dice_forward`."""
    rows = np.moveaxis(scores, 1, -1).reshape(-1, scores.shape[1]).astype(np.float64)
    shares = np.exp(rows - rows.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    wanted = np.eye(scores.shape[1])[np.ravel(labels)]
    above = 2 * (shares * wanted).sum(0) + smooth
    return float(1 - np.mean(above / (shares.sum(0) + wanted.sum(0) + smooth)))


def _accuracy(scores: np.ndarray[Any, Any], labels: Any, loss: CrossEntropy) -> float:
    """Share of the labels that count."""
    found = np.argmax(scores, loss.class_axis(scores.ndim))
    wanted = np.reshape(labels, found.shape)
    return float(np.mean((found == wanted)[wanted != loss.ignore_index]))


def _cross_entropy(scores: np.ndarray[Any, Any], labels: Any, loss: CrossEntropy) -> float:
    """Cross-entropy of the labels that count, with weights and without smoothing."""
    axis = loss.class_axis(scores.ndim)
    rows = np.moveaxis(scores, axis, -1).reshape(-1, scores.shape[axis]).astype(np.float64)
    classes = np.ravel(labels)
    rows, classes = rows[classes != loss.ignore_index], classes[classes != loss.ignore_index]
    weights = np.ones(rows.shape[1]) if loss.class_weights is None else np.array(loss.class_weights)
    largest = rows.max(1, keepdims=True)
    logs = rows - largest - np.log(np.exp(rows - largest).sum(1, keepdims=True))
    counted = weights[classes]
    return float(-(counted * logs[np.arange(len(rows)), classes]).sum() / counted.sum())
