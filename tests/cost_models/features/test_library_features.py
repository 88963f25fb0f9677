"""Calls that a library computes in other ways look different to a model."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.onednn.onednn_twins import needs_onednn, needs_products
from tvm_xengine.cost_models.features.hardware import Hardware
from tvm_xengine.cost_models.features.library_features import (
    library_cycles,
    library_features,
)
from tvm_xengine.kernels.library.call import LibraryCall
from tvm_xengine.kernels.library.flops import flops
from tvm_xengine.kernels.onednn.library import load_onednn
from tvm_xengine.kernels.onednn.operations import describe

WINDOW = (("dilation", (1, 1)), ("groups", 1), ("strides", (1, 1)))


def stages_of(call):
    program = describe(call, load_onednn())
    assert program is not None
    return program.stages


def features(call):
    stages = () if call is None else stages_of(call)
    return library_features(call, stages, 0.0 if call is None else flops(call))


def convolution(channels, extent, size):
    border = size // 2
    image = (2, channels, extent, extent)
    return LibraryCall(
        "convolution",
        (*WINDOW, ("padding", (border,) * 4)),
        (image, (channels, channels, size, size), image),
        threads=1,
        source="onednn",
    )


def layer_norm(rows, columns):
    return LibraryCall(
        "layer_norm_forward",
        (("epsilon", 1e-5),),
        ((rows, columns), (columns,), (columns,), (rows, columns), (rows,), (rows,)),
        threads=1,
        source="onednn",
        num_outputs=3,
    )


@needs_onednn
def test_every_call_has_the_same_names_and_finite_numbers():
    nothing = features(None)
    assert not any(nothing.values())
    for call in (convolution(16, 8, 3), convolution(16, 8, 1), layer_norm(4, 8)):
        found = features(call)
        assert list(found) == list(nothing)
        assert np.isfinite(list(found.values())).all()


@needs_products
def test_a_window_needs_blocks_of_channels_and_one_pixel_does_not():
    wide, narrow = features(convolution(32, 8, 3)), features(convolution(32, 8, 1))
    assert wide["library_stage_copies"] >= 2 and narrow["library_stage_copies"] == 0
    assert narrow["library_stage_code_brg"] and not wide["library_stage_code_brg"]
    copied = [name for name in wide if name.startswith("log_library_stage_copied")]
    assert max(wide[name] for name in copied) > 10 and not any(narrow[name] for name in copied)


@needs_onednn
def test_the_copies_of_padded_channels_count_in_full():
    # 17 channels fill two blocks of 16.
    odd, even = features(convolution(17, 8, 3)), features(convolution(16, 8, 3))
    assert odd["log_library_stage_bytes"] - even["log_library_stage_bytes"] > 0.8


@needs_products
def test_a_product_of_one_column_takes_the_cycles_of_a_whole_vector():
    hardware = Hardware(
        vector_bytes=64, cores=1, has_fma=True, caches_bytes=(1 << 15, 1 << 20, 1 << 25)
    )

    def cycles(call):
        return library_cycles(call, stages_of(call), flops(call), hardware)

    one, all_lanes = convolution(64, 1, 1), convolution(64, 4, 1)
    assert flops(all_lanes) == 16 * flops(one)
    assert cycles(all_lanes) == cycles(one)
    # Channels fill the vectors of a convolution with a window.
    assert cycles(convolution(17, 8, 3)) == pytest.approx(cycles(convolution(32, 8, 3)) * 17 / 32)
