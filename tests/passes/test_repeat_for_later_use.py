"""A repetition computes the same, and frees memory across the loss."""

from __future__ import annotations

import numpy as np
import pytest
import tvm

from tests.passes.small_step import SmallStep, reference
from tests.vm import reference_vm
from tvm_xengine.passes.repeat_for_later_use import RepeatForLaterUse, repeatable_calls
from tvm_xengine.relax_ir.extract import extract_graph


def repeated(*names: str) -> tvm.IRModule:
    return tvm.transform.Sequential([RepeatForLaterUse("train_step", frozenset(names))])(SmallStep)


def test_a_call_is_repeated_before_its_first_use_after_the_loss() -> None:
    graph = extract_graph(repeated("both")).graph
    assert [op.name for op in graph.ops] == ["h", "both", "y", "both_recomputed", "g", "w_new"]
    assert graph.reads["both_recomputed"] == ("h",)
    assert graph.reads["g"] == ("y", "both_recomputed.1")
    assert graph.reads["y"] == ("both.0", "w")


def test_a_chain_is_repeated_from_what_is_kept() -> None:
    graph = extract_graph(repeated("h", "both")).graph
    assert graph.reads["both_recomputed"] == ("h_recomputed",)
    assert graph.consumers["h"] == ("both",)


def test_the_result_is_the_same() -> None:
    x = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)
    w = np.linspace(0, 2, 32, dtype=np.float32)
    machine = reference_vm(repeated("h", "both"))
    arguments = [tvm.runtime.tensor(value) for value in (x, np.float32(0.5), w)]
    results = machine["train_step"](*arguments)
    for found, expected in zip(results, reference(x, 0.5, w), strict=True):
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (None, {"h", "both"}),
        ({"h"}, set()),  # its only reader, `both`, runs before the loss
        ({"y", "w_new"}, set()),  # the step returns them
        ({"both", "g"}, {"both"}),
    ],
)
def test_only_calls_with_a_later_use_are_repeated(wanted: set[str] | None, found: set[str]) -> None:
    assert repeatable_calls(SmallStep["train_step"], wanted) == found
