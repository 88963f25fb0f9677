"""The ways to run a step that an export is compared with."""

import pytest

from tests.explain.plans import chain_plan
from tvm_xengine.aot.plan import alternatives as module
from tvm_xengine.aot.plan.alternatives import Alternative, alternatives
from tvm_xengine.commands.run.export.shown import comparison


@pytest.mark.parametrize("work", [1e-9, 20.0])
def test_nothing_shown_is_smaller_than_the_smallest_arena(
    work: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Greedy finds nothing, or something larger than the plan of the exact solvers."""
    monkeypatch.setattr(module, "_SEARCH_WORK", work)
    shown = alternatives(chain_plan(12, 0.4), lambda schedule: 10.0 * len(schedule.steps))
    sizes = {one.name: sum(one.arena_bytes.values()) for one in shown}
    assert list(sizes) == ["plan", "keep-all", "smallest arena"]
    assert sizes["smallest arena"] == min(sizes.values()) < sizes["keep-all"]
    own, keep, _ = (one.instructions for one in shown)
    assert own > keep > 0


@pytest.mark.parametrize(("energy_uj", "shown"), [(0.0, []), (12.5, ["uJ"])])
def test_energy_is_shown_where_it_is_known(energy_uj: float, shown: list[str]) -> None:
    table = comparison([Alternative("plan", {"sram": 64}, 2.0, energy_uj, 123456.0, 1, 3)])
    titles = [str(column.header) for column in table.columns]
    assert titles == ["", "bytes", "us", "instructions", *shown, "ops again", "copies"]
    (energy,) = [[*c.cells] for c in table.columns if c.header == "uJ"] or [["12.5"]]
    assert energy == ["12.5"]
