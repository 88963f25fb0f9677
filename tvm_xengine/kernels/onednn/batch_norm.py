"""Batch norm, with a relu or the end of a residual block behind it, and the gradients.

Our kernels hand on 1 / sqrt(variance + epsilon) where oneDNN has the variance; two primitives on
a number per channel turn one into the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm_xengine.kernels.library.call import LibraryCall
from tvm_xengine.kernels.onednn.descriptors import MemoryDesc, PrimitiveDesc
from tvm_xengine.kernels.onednn.elementwise import RELU, apply, apply_backward
from tvm_xengine.kernels.onednn.enumerators import (
    ARG_DIFF_DST,
    ARG_DIFF_SCALE,
    ARG_DIFF_SHIFT,
    ARG_DIFF_SRC,
    ARG_DST,
    ARG_MEAN,
    ARG_SCALE,
    ARG_SHIFT,
    ARG_SRC,
    ARG_SRC_1,
    ARG_VARIANCE,
    BACKWARD,
    BINARY_ADD,
    ELTWISE_LINEAR,
    ELTWISE_POW,
    ELTWISE_RELU,
    FORWARD_INFERENCE,
    FORWARD_TRAINING,
    USE_GLOBAL_STATISTICS,
    USE_SCALE_AND_SHIFT,
)
from tvm_xengine.kernels.onednn.library import OnednnLibrary
from tvm_xengine.kernels.onednn.program import Placed, Program, ProgramBuilder


def batch_norm_forward(call: LibraryCall, library: OnednnLibrary) -> Program | None:
    """(data, gamma, beta) -> (output, mean, 1 / sqrt(variance + epsilon))."""
    work = _Work(call, library, data=0)
    output, mean, inv_std = work.tensor(3), work.channels(4), work.channels(5)
    if not work.normalise(1, 2, output, mean, inv_std, keeps_statistics=True):
        return None
    if call.option["relu"]:
        apply(work.builder, library, ELTWISE_RELU, output, output)
    work.invert(inv_std)
    return work.builder.program()


def batch_norm_add_relu_forward(call: LibraryCall, library: OnednnLibrary) -> Program | None:
    """(data, gamma, beta, residual) -> (output, mean, 1 / sqrt(variance + epsilon))."""
    work = _Work(call, library, data=0)
    residual, output = work.tensor(3), work.tensor(4)
    mean, inv_std = work.channels(5), work.channels(6)
    if not work.normalise(1, 2, output, mean, inv_std, keeps_statistics=True):
        return None
    add = library.describe_good(
        "binary",
        BINARY_ADD,
        output.desc,
        residual.desc,
        output.desc,
        attributes=library.attributes(relu=True),
    )
    if add is None:
        return None
    work.builder.run(add, {ARG_SRC: output, ARG_SRC_1: residual, ARG_DST: output})
    work.invert(inv_std)
    return work.builder.program()


def batch_norm_inference(call: LibraryCall, library: OnednnLibrary) -> Program | None:
    """(data, gamma, beta, running mean, running variance) -> output."""
    work = _Work(call, library, data=0)
    output = work.tensor(5)
    if not work.normalise(1, 2, output, work.channels(3), work.channels(4), keeps_statistics=False):
        return None
    if call.option["relu"]:
        apply(work.builder, library, ELTWISE_RELU, output, output)
    return work.builder.program()


def batch_norm_backward(call: LibraryCall, library: OnednnLibrary) -> Program | None:
    """(output gradient, data, gamma, beta, mean, inv_std) -> gradients of data, gamma, beta."""
    work = _Work(call, library, data=1, epsilon=0.0)
    mean, variance = work.channels(4), work.variance_of(5)
    gradient = work.masked(mean, variance) if call.option["relu"] else work.tensor(0)
    gradients = work.wanted((work.data_desc, work.channel_desc, work.channel_desc), first=6)
    if gradient is None or not work.differentiate(gradient, 2, mean, variance, gradients):
        return None
    return work.builder.program()


def batch_norm_inference_backward(call: LibraryCall, library: OnednnLibrary) -> Program | None:
    """(output gradient, data, gamma, beta, running mean and variance) -> the same gradients."""
    work = _Work(call, library, data=1)
    mean, variance = work.channels(4), work.channels(5)
    gradient = work.masked(mean, variance) if call.option["relu"] else work.tensor(0)
    gradients = work.wanted((work.data_desc, work.channel_desc, work.channel_desc), first=6)
    is_done = gradient is not None and work.differentiate(
        gradient, 2, mean, variance, gradients, flags=USE_GLOBAL_STATISTICS
    )
    return work.builder.program() if is_done else None


def batch_norm_add_relu_backward(call: LibraryCall, library: OnednnLibrary) -> Program | None:
    """(output gradient, output, data, gamma, mean, inv_std) -> those and of the residual."""
    work = _Work(call, library, data=2, epsilon=0.0)
    mean, variance = work.channels(4), work.variance_of(5)
    data, channel = work.data_desc, work.channel_desc
    *gradients, residual = work.wanted((data, channel, channel, data), first=6)
    if not apply_backward(work.builder, library, RELU, work.tensor(0), work.tensor(1), residual):
        return None
    if not work.differentiate(residual, 3, mean, variance, gradients):
        return None
    return work.builder.program()


@dataclass
class _Work:
    """A program that is being made.

    Attributes
    ----------
    data
        Number of the parameter that is normalised.
    epsilon
        What is added to the variance; by default the kernel's option.
    """

    call: LibraryCall
    library: OnednnLibrary
    data: int
    epsilon: float | None = None

    def __post_init__(self) -> None:
        shape = self.call.shapes[self.data]
        self.data_desc = self.library.plain(shape)
        self.channel_desc = self.library.plain((shape[1],))
        self.builder = ProgramBuilder(self.library)
        self.added = (
            float(str(self.call.option["epsilon"])) if self.epsilon is None else self.epsilon
        )

    def tensor(self, number: int) -> Placed:
        """A parameter of the data's shape."""
        return self.builder.part(number, 0, self.data_desc)

    def channels(self, number: int) -> Placed:
        """A parameter with a number for each channel."""
        return self.builder.part(number, 0, self.channel_desc)

    def wanted(self, descs: Sequence[MemoryDesc], first: int) -> list[Placed]:
        """The gradients: parameters from `first` on, and scratch memory for what nobody wants."""
        places, number = [], first
        flags = self.call.option["wanted"]
        assert isinstance(flags, tuple)
        for desc, needed in zip(descs, flags, strict=True):
            places.append(
                self.builder.part(number, 0, desc) if needed else self.builder.scratch(desc)
            )
            number += bool(needed)
        return places

    def normalise(
        self,
        gamma: int,
        beta: int,
        output: Placed,
        mean: Placed,
        variance: Placed,
        *,
        keeps_statistics: bool,
    ) -> bool:
        """Make the output, with statistics of the batch or with those given; False where it cannot."""
        norm = self._forward(0 if keeps_statistics else USE_GLOBAL_STATISTICS)
        if norm is None:
            return False
        places = {
            ARG_SRC: self.tensor(self.data),
            ARG_SCALE: self.channels(gamma),
            ARG_SHIFT: self.channels(beta),
            ARG_MEAN: mean,
            ARG_VARIANCE: variance,
            ARG_DST: output,
        }
        self.builder.run(norm, places)
        return True

    def masked(self, mean: Placed, variance: Placed) -> Placed | None:
        """The output's gradient, zero where the output, which is made again, was not positive."""
        again, masked = (self.builder.scratch(self.data_desc) for _ in range(2))
        if not self.normalise(2, 3, again, mean, variance, keeps_statistics=False):
            return None
        gradient = self.tensor(0)
        is_done = apply_backward(self.builder, self.library, RELU, gradient, again, masked)
        return masked if is_done else None

    def differentiate(
        self,
        gradient: Placed,
        gamma: int,
        mean: Placed,
        variance: Placed,
        made: Sequence[Placed],
        flags: int = 0,
    ) -> bool:
        """Make the gradients of data, gamma and beta; False where oneDNN has nothing good."""
        forward = self._forward(flags, FORWARD_TRAINING)
        if forward is None:
            return False
        backward = self.library.describe_good(
            "batch_normalization_backward",
            BACKWARD,
            self.data_desc,
            self.data_desc,
            self.data_desc,
            self.added,
            USE_SCALE_AND_SHIFT | flags,
            forward,
            attributes=self.library.attributes(),
        )
        if backward is None:
            return False
        data, scale, shift = made
        places = {
            ARG_DIFF_DST: gradient,
            ARG_SRC: self.tensor(self.data),
            ARG_SCALE: self.channels(gamma),
            ARG_MEAN: mean,
            ARG_VARIANCE: variance,
            ARG_DIFF_SRC: data,
            ARG_DIFF_SCALE: scale,
            ARG_DIFF_SHIFT: shift,
        }
        self.builder.run(backward, places)
        return True

    def variance_of(self, inv_std: int) -> Placed:
        """The variance, epsilon added, of a parameter with 1 / sqrt of it."""
        variance = self.builder.scratch(self.channel_desc)
        apply(
            self.builder, self.library, ELTWISE_POW, self.channels(inv_std), variance, (1.0, -2.0)
        )
        return variance

    def invert(self, variance: Placed) -> None:
        """Write 1 / sqrt(variance + epsilon) over the variance."""
        apply(self.builder, self.library, ELTWISE_LINEAR, variance, variance, (1.0, self.added))
        apply(self.builder, self.library, ELTWISE_POW, variance, variance, (1.0, -0.5))

    def _forward(self, flags: int, kind: int | None = None) -> PrimitiveDesc | None:
        if kind is None:
            kind = FORWARD_INFERENCE if flags else FORWARD_TRAINING
        return self.library.describe_good(
            "batch_normalization_forward",
            kind,
            self.data_desc,
            self.data_desc,
            self.added,
            USE_SCALE_AND_SHIFT | flags,
            attributes=self.library.attributes(),
        )
