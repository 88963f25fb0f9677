"""The ways to run a step that an export is compared with."""

import pytest

from tests.explain.plans import chain_plan
from tvm_xengine.aot.plan import alternatives as module
from tvm_xengine.aot.plan.alternatives import alternatives


@pytest.mark.parametrize("work", [1e-9, 20.0])
def test_nothing_shown_is_smaller_than_the_smallest_arena(
    work: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Greedy finds nothing, or something larger than the plan of the exact solvers."""
    monkeypatch.setattr(module, "_SEARCH_WORK", work)
    shown = alternatives(chain_plan(12, 0.4))
    sizes = {one.name: sum(one.arena_bytes.values()) for one in shown}
    assert list(sizes) == ["plan", "keep-all", "smallest arena"]
    assert sizes["smallest arena"] == min(sizes.values()) < sizes["keep-all"]
