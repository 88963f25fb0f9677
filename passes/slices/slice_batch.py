"""Run a step slice by slice of its batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import tvm
from tvm import relax

from tvm_xengine.passes.slices.reading import Reading
from tvm_xengine.passes.slices.write_slices import SliceWriter
from tvm_xengine.relax_ir.dataflow import single_block
from tvm_xengine.scheduling.replicas.batch_cut import BatchCut


@dataclass(frozen=True)
class SlicedStep:
    """A module whose step runs in slices.

    Attributes
    ----------
    calls
        For each kernel call of the step before, by name, those that do its work.
    share_of
        For each kernel call that works on slices of one share, and each parameter that is one, by name,
        the number of that share.
    inputs
        For each parameter of the batch that is given in slices, those slices.
    """

    mod: tvm.IRModule
    calls: Mapping[str, tuple[str, ...]]
    share_of: Mapping[str, int]
    inputs: Mapping[str, tuple[str, ...]]


def slice_batch(mod: tvm.IRModule, func_name: str, cut: BatchCut) -> SlicedStep | None:
    """The module with kernel calls of a step divided along the batch; None where none can be.

    .. code-block:: python

        h = R.call_tir(conv2d_relu, (x, w), R.Tensor((16, 8, 28, 28)))
        dw = R.call_tir(conv_weight_gradient, (h, dy), R.Tensor((16, 8, 3, 3)))

    becomes for two parts

    .. code-block:: python

        x_1of2 = R.call_tir(slice, (x,), R.Tensor((8, 3, 28, 28)))
        h_1of2 = R.call_tir(conv2d_relu_slice, (x_1of2, w), R.Tensor((8, 8, 28, 28)))
        dw_1of2 = R.call_tir(conv_weight_gradient_slice, (h_1of2, dy_1of2), ...)
        x_2of2 = ...
        dw = R.call_tir(conv_weight_gradient_slice_add, (h_2of2, dy_2of2, dw_1of2), ...)

    so that a slice of `h` is needed at a time. Sums over the batch are added slice by slice; in two
    shares, which are to run side by side, they are added when both are there:

    .. code-block:: python

        dw_1of2 = R.call_tir(conv_weight_gradient_slice, (h_1of2, dy_1of2), ...)
        dw_2of2 = R.call_tir(conv_weight_gradient_slice, (h_2of2, dy_2of2), ...)
        dw_summed = R.call_tir(sum_of_shares, (dw_1of2, dw_2of2), ...)

    and the parameters `x_1of2` and `x_2of2` take the place of `x`, so that each device is given its share.
    Where every slice needs such a sum (batch statistics), the kernel is taken apart around it. Kernels
    that cannot be divided run on whole tensors. Results are those of the step before, but for the order in
    which sums over the batch are added. Runs last, on what :class:`WriteOverState` has made.

    Parameters
    ----------
    cut
        Where the batch is cut.
    """
    func = mod[func_name]
    reading = Reading.of(mod, func, cut)
    slicer = SliceWriter(mod, func, reading, cut)
    for position, binding in enumerate(single_block(func).bindings):
        slicer.read(position, binding)
    if not slicer.has_slices:
        return None
    divided = slicer.finished(func)
    result = slicer.kernels.module
    result[func_name] = divided
    typed = relax.transform.Normalize()(result)
    sliced = relax.transform.DeadCodeElimination([func_name])(typed)
    calls = {name: tuple(names) for name, names in slicer.calls.items()}
    share_of = {
        one.binding.var.name: cut.shares[one.slice]
        for one in slicer.emitted
        if one.slice is not None
    }
    inputs = {
        param.name: tuple(one.name for one in slices)
        for param, slices in slicer.given_in_slices.items()
    }
    for names in inputs.values():
        share_of.update(zip(names, cut.shares, strict=True))
    return SlicedStep(sliced, calls, share_of, inputs)
