from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from tvm_xengine.cost_models.corpus.variants import Variant, variants
from tvm_xengine.cost_models.dataset.collect import (
    CollectOptions,
    collect,
    devices_of,
    training_kernels,
)
from tvm_xengine.cost_models.dataset.dataset import DatasetFolder
from tvm_xengine.cost_models.measure.timing import Effort
from tvm_xengine.errors import InvalidPlatformError
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.kernels.sources import AUTO, available_sources
from tvm_xengine.kernels.targets import resolve_target

NATIVE = "llvm -mcpu=native"
OPTIONS = CollectOptions(("llvm -mcpu=x86-64",), kernels=1, effort=Effort(rounds=1))


class Refused(Variant):
    """A network that the compiler does not take."""

    def build(self) -> ForwardModel:
        raise ValueError("the shapes differ\nand much more that nobody reads")


@pytest.mark.slow
def test_a_network_that_cannot_be_built_is_left_out(tmp_path: Path, caplog) -> None:
    (good,) = islice(variants(("mlp",)), 1)
    refused = Refused(**vars(replace(good, network="bad")))
    folder = DatasetFolder(tmp_path)
    assert collect(folder, [refused, good], OPTIONS) == OPTIONS.kernels
    assert len(folder) == OPTIONS.kernels, "kernels that are not wanted are not kept"
    assert folder.load().all_families() == ("mlp",)
    (said,) = [record.getMessage() for record in caplog.records]
    assert said == f"{refused} is left out: the shapes differ"


def test_kernels_are_those_of_plans_a_librarys_where_it_has_one() -> None:
    if "onednn" not in (here := available_sources((AUTO,), resolve_target(NATIVE), NATIVE)):
        pytest.skip("oneDNN is not installed")
    (variant,) = islice(variants(("mlp",)), 1)
    options = CollectOptions((NATIVE, "llvm -mcpu=x86-64"), kernels=1)
    native, any_processor = devices_of(options)
    assert native[1] == here
    assert any_processor[1] == ("tir",)
    kernels = training_kernels(variant, [native])
    assert {kernel.library is None for kernel in kernels} == {True, False}


@pytest.mark.parametrize(
    "options",
    [
        replace(OPTIONS, targets=("native",)),
        replace(OPTIONS, sources=("onednn",)),
    ],
)
def test_what_no_target_can_compute_is_refused_before_any_network(tmp_path, options) -> None:
    def none_is_asked_for() -> Iterator[Variant]:
        raise AssertionError("a network was built")
        yield

    with pytest.raises(InvalidPlatformError):
        collect(DatasetFolder(tmp_path), none_is_asked_for(), options)
