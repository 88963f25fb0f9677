"""Another package adds a cost model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cost_models.synthetic import synthetic
from tests.extensions.toy_package import installed
from tvm_xengine.cost_models.judging.leaderboard import leaderboard
from tvm_xengine.cost_models.models.baselines import LogLinear
from tvm_xengine.cost_models.models.catalogue import cost_model, cost_models
from tvm_xengine.errors import ExtensionError

TOY = """
import numpy as np

from tvm_xengine.cost_models.models.model import point_prediction


class Median:
    name = "median"

    def fit(self, data):
        self.time_us = np.median(data.time_us)
        return self

    def predict(self, table):
        return point_prediction(np.full(len(table.values), self.time_us), spread=1.0)


MADE = Median()
"""


@pytest.mark.parametrize("named", ["toy:Median", "toy:MADE"])
def test_a_model_is_compared_with_those_that_ship(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = synthetic(60)
    with installed(TOY, {"cost_models": f"median = {named}"}, tmp_path, monkeypatch):
        assert "median" in cost_models()
        rows = leaderboard((cost_model("median"), LogLinear()), data)["random"]
        predicted = cost_model("median").fit(data).predict(data.table)
    assert {row.model for row in rows} == {"median", "log-linear"}
    np.testing.assert_allclose(predicted.time_us, np.median(data.time_us))
    assert "median" not in cost_models()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("empty = toy:TIMES", "'empty' of the entry points .*toy:TIMES"),
        ("module = toy:np", "cost model 'module': expected an object with name and fit"),
        ("array = toy:np.zeros", "cost model 'array': expected an object with name and fit"),
    ],
)
def test_what_is_no_model_is_named_when_it_is_used(
    line: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with installed(TOY, {"cost_models": line}, tmp_path, monkeypatch):
        assert cost_model("roofline").name == "roofline"
        with pytest.raises(ExtensionError, match=said):
            cost_model(line.partition(" ")[0])


def test_no_package_replaces_a_model_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with installed(TOY, {"cost_models": "roofline = toy:Median"}, tmp_path, monkeypatch):
        assert cost_model("roofline").name == "roofline"
