"""What is locked stays out, and every look is written down."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.cost_models.synthetic import synthetic
from tvm_xengine.cost_models.labels.held_out import (
    HELD_OUT_FAMILIES,
    is_held_out,
    judge,
    looks,
    open_part,
)
from tvm_xengine.cost_models.models.baselines import LogLinear
from tvm_xengine.errors import InvalidDatasetError

LOCKED = min(HELD_OUT_FAMILIES)
DESCRIBED = {"model": "log-linear", "why": "a test"}


def data_with_locked(rows: int = 60):
    data = synthetic(rows)
    return replace(
        data,
        families=tuple(("family0", LOCKED) if k % 3 == 0 else ("family0",) for k in range(rows)),
    )


def test_a_kernel_that_occurs_in_a_locked_family_stays_out():
    data = data_with_locked()
    assert len(open_part(data)) == 40
    assert not is_held_out(open_part(data)).any()


def test_each_look_is_a_line_of_the_ledger(tmp_path):
    ledger, data = tmp_path / "ledger.jsonl", data_with_locked()
    predictor = LogLinear().fit(open_part(data))
    held_out = judge(predictor, data, ledger, DESCRIBED)
    judge(predictor, data, ledger, DESCRIBED | {"why": "again"})
    assert len(held_out.data) == 20
    found = looks(ledger)
    assert [look.why for look in found] == ["a test", "again"]
    assert found[0].digest == found[1].digest
    assert found[0].median_error_ratio == pytest.approx(
        held_out.metrics().median_error_ratio, abs=1e-4
    )


def test_without_locked_kernels_nothing_is_judged_or_written(tmp_path):
    ledger = tmp_path / "ledger.jsonl"
    data = synthetic(20)
    with pytest.raises(InvalidDatasetError, match=LOCKED):
        judge(LogLinear().fit(data), data, ledger, DESCRIBED)
    assert not ledger.exists()
