"""Options of training: data, loss, optimizer, the loop, and what is kept of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from tvm_xengine.commands.arguments.names import (
    FROZEN_NAMES,
    OPTIMIZER_NAMES,
    PRECISION_NAMES,
)
from tvm_xengine.commands.arguments.options import OUTPUT, TRAINING
from tvm_xengine.commands.arguments.parameter import shown_as
from tvm_xengine.commands.arguments.values import (
    Betas,
    Count,
    Counts,
    File,
    Flag,
    NotNegative,
    Patterns,
    Positive,
    Share,
    Source,
    Text,
    choice,
)


@Parameter(name="*", group=TRAINING)
@dataclass(frozen=True)
class LossOptions:
    """What is minimised.

    Attributes
    ----------
    loss
        Name of the loss, with PyTorch's options for it: cross_entropy, or
        'cross_entropy(label_smoothing=0.1)'. By default the only one that fits the
        model's output; the report names it.
    """

    loss: Text | None = None


@Parameter(name="*", group=TRAINING)
@dataclass(frozen=True)
class OptimizerOptions:
    """How parameters are updated; options that are not given have PyTorch's defaults.

    Attributes
    ----------
    optimizer
        Name of the optimizer; momentum and nesterov are sgd with a momentum of 0.9.
    lr
        Learning rate.
    momentum
        Momentum, for sgd and rmsprop.
    dampening
        Dampening of the momentum, for sgd.
    nesterov
        Use Nesterov momentum, for sgd.
    weight_decay
        Weight decay.
    betas
        Decay rates of the two averages, for adam, adamw, nadam, radam, adamax and lion.
    eps
        Term added to denominators, for all but sgd and lion.
    amsgrad
        Use the AMSGrad variant, for adam and adamw.
    alpha
        Decay rate of the average, for rmsprop.
    centered
        Divide by the estimated standard deviation, for rmsprop.
    rho
        Decay rate of the averages, for adadelta.
    momentum_decay
        How fast the momentum grows, for nadam.
    decoupled_weight_decay
        Shrink parameters as adamw does, for nadam and radam.
    lr_decay
        Decay of the learning rate, for adagrad.
    """

    optimizer: Annotated[str | None, choice(OPTIMIZER_NAMES)] = None
    lr: Positive | None = None
    momentum: Share | None = None
    dampening: Share | None = None
    nesterov: Flag = False
    weight_decay: NotNegative | None = None
    betas: Betas | None = None
    eps: Positive | None = None
    amsgrad: Flag = False
    alpha: Share | None = None
    centered: Flag = False
    rho: Share | None = None
    momentum_decay: NotNegative | None = None
    decoupled_weight_decay: Flag = False
    lr_decay: NotNegative | None = None


@Parameter(name="*", group=TRAINING)
@dataclass(frozen=True)
class ParameterOptions:
    """Which parameters are trained, and limits of their gradients.

    Attributes
    ----------
    train
        Train only the parameters whose names match a pattern, e.g. 'head.*'.
    freeze
        Do not train the parameters whose names match a pattern.
    clip_norm
        Limit for the norm of all gradients together.
    clip_value
        Limit for the magnitude of each element of a gradient.
    micro_batches
        Batches that one step takes; their gradients are averaged.
    precision
        Compute heavy ops in this type; parameters stay in float32.
    """

    train: Patterns = ()
    freeze: Patterns = ()
    clip_norm: Positive | None = None
    clip_value: Positive | None = None
    micro_batches: Count = 1
    precision: Annotated[str | None, choice(PRECISION_NAMES)] = None


@Parameter(name="*", group=TRAINING)
@dataclass(frozen=True)
class FrozenOptions:
    """How frozen layers compute.

    Attributes
    ----------
    frozen
        Type of the layers before the first trained one: float32 or int8, with scales of the model
        (QuantizeLinear in an ONNX file) or from --calibration.
    calibration
        Source of samples for the scales of int8, as --data.
    percentile
        Share of the values, in percent, that the range of a tensor holds.
    int8_behind
        Keep weights of frozen layers behind a trained one in int8, too; they compute in float32.
    """

    frozen: Annotated[str, choice(FROZEN_NAMES)] = "float32"
    calibration: Source | None = None
    percentile: Positive = 100.0
    int8_behind: Flag = False


@Parameter(name="*", group=TRAINING)
@dataclass(frozen=True)
class DataOptions:
    """What a model learns from.

    Attributes
    ----------
    data
        digits, a .npz file with arrays x and y (or named as the inputs), a folder of images with
        a subfolder for each class, or package.module:function, which returns arrays or batches.
    validation
        Share of the samples to hold out, such as 0.2, or another source of data.
    """

    data: Source = "digits"
    validation: Annotated[Source | None, shown_as("SHARE|SOURCE")] = None


@Parameter(name="*", group=TRAINING)
@dataclass(frozen=True)
class LoopOptions:
    """How long and how fast the model learns.

    Attributes
    ----------
    epochs
        Passes over the data.
    steps
        Total number of steps, including those before a checkpoint; by default 600, or those of
        --epochs.
    lr_schedule
        cosine[:WARMUP], linear[:WARMUP] or constant[:WARMUP] (WARMUP steps from 0 to the rate),
        step:N:FACTOR, or package.module:function of the number of steps taken.
    schedule
        Run this schedule, saved or hand-edited, instead of planning one.
    share
        Steps that each of several models takes in its turn, in their order; by default 1.
    replan
        Time the calls of the first steps while training, plan again with these times, and go on
        with the better plan.
    no_guard
        Keep the state of a step that makes values that are not finite; by default the step is undone, and
        training stops. A loss that is not finite ends the training either way.
    no_compare
        Skip the comparison of each step with a keep-all step; halves the time.
    """

    epochs: Count | None = None
    steps: Count | None = None
    lr_schedule: Annotated[str | None, shown_as("SCHEDULE")] = None
    schedule: File | None = None
    share: Counts = ()
    replan: Flag = False
    no_guard: Flag = False
    no_compare: Flag = False


@Parameter(name="*", group=OUTPUT)
@dataclass(frozen=True)
class StateOptions:
    """What is kept of the training.

    Attributes
    ----------
    save
        Write the trained tensors by the model's own names (.safetensors, .pt or .npz).
    checkpoint
        Write state, optimizer and position, each epoch and at the end; --resume continues
        from it.
    checkpoint_every
        Write the checkpoint every N steps instead of each epoch.
    resume
        Continue from a checkpoint, which is updated unless --checkpoint names another file.
    trace
        Write when each call of the last step was planned to run, and when it ran, as JSON for
        Perfetto.
    """

    save: File | None = None
    checkpoint: File | None = None
    checkpoint_every: Count | None = None
    resume: File | None = None
    trace: File | None = None
