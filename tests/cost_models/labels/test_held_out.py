"""What is locked stays out, and every look is written down."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.cost_models.synthetic import synthetic
from tvm_xengine.cost_models.judging.evaluate import HeldOut
from tvm_xengine.cost_models.labels.held_out import (
    FAMILIES,
    HELD_OUT_FAMILIES,
    LEDGER,
    held_out_part,
    is_held_out,
    looks,
    note_look,
    open_part,
)
from tvm_xengine.cost_models.labels.shipped import SHIPPED_LABELS
from tvm_xengine.cost_models.models.baselines import LogLinear
from tvm_xengine.errors import InvalidDatasetError

LOCKED = min(HELD_OUT_FAMILIES)


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
    part = held_out_part(data)
    found = HeldOut(part, predictor.predict(part.table))
    note_look(found, ledger, model="log-linear", why="a test")
    note_look(found, ledger, model="log-linear", why="again", scope="znver3")
    assert len(part) == 20
    lines = looks(ledger)
    assert [(look.why, look.scope) for look in lines] == [
        ("a test", FAMILIES),
        ("again", "znver3"),
    ]
    assert lines[0].digest == lines[1].digest
    assert all((look.machine, look.versions) for look in lines)
    assert lines[0].median_error_ratio == pytest.approx(
        found.metrics().median_error_ratio, abs=1e-4
    )


def test_data_without_locked_kernels_has_no_held_out_part():
    with pytest.raises(InvalidDatasetError, match=LOCKED):
        held_out_part(synthetic(20))


def test_the_shipped_ledger_can_be_read():
    assert looks(SHIPPED_LABELS / LEDGER)
