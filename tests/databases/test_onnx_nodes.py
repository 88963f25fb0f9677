"""The importer agrees with ONNX's node tests, or refuses them by name."""

import pytest

from tests.databases.onnx_nodes import Status, Verdict, all_cases, judge
from tests.databases.onnx_walk import table, walk

pytestmark = pytest.mark.filterwarnings("ignore")

_SETTLED = {Status.EQUAL, Status.REFUSED, Status.NOT_APPLICABLE}

_LEAST_EQUAL = 1744
"""Cases of onnx 1.23 that are equal, less some that another version of onnx may change."""


_SHARE = 6
"""One operator of so many; all of them are walked in the slow tests, and for the table."""


def _one_of_each() -> list[str]:
    """For each operator the case in the middle of its names, so that new ones are drawn, too."""
    names: dict[str, list[str]] = {}
    for case in all_cases():
        if not case.outside and "_expanded" not in case.name:
            names.setdefault(case.operator, []).append(case.name)
    return [found[len(found) // 2] for found in names.values()]


def test_a_share_of_the_operators_is_equal_or_refused():
    """In this process, where the cases are already; none of these ends it."""
    cases = {case.name: case for case in all_cases()}
    assert _unsettled([judge(cases[name]) for name in _one_of_each()[::_SHARE]]) == []


@pytest.mark.slow
def test_every_case_is_equal_or_refused():
    verdicts = list(walk([case.name for case in all_cases()]))
    assert _unsettled(verdicts) == []
    assert sum(one.status is Status.EQUAL for one in verdicts) >= _LEAST_EQUAL


@pytest.mark.slow
def test_refusals_name_the_node_or_the_tensor():
    refused = [one for one in walk(_one_of_each()) if one.status is Status.REFUSED]
    assert refused
    for one in refused:
        assert "(in " in one.reason or "tensor" in one.reason or "makes" in one.reason, one


def test_the_table_counts_what_the_verdicts_say():
    verdicts = [
        Verdict("a", "Add", Status.EQUAL),
        Verdict("b", "Add", Status.REFUSED, "because"),
        Verdict("c", "Sub", Status.NOT_APPLICABLE, "strings"),
    ]
    page = table(verdicts)
    assert "Of 2 judged cases 50.0% are equal." in page
    assert "| Add | 1 | 2 | refused: because (1) |" in page


def _unsettled(verdicts: list[Verdict]) -> list[Verdict]:
    return [one for one in verdicts if one.status not in _SETTLED]
