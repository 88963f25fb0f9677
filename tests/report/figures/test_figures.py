"""Pictures, trace and snapshot show the bytes and times of the plan."""

from __future__ import annotations

import json
import pickle
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings

from tests.commands.in_process import run_command
from tests.explain.plans import chain_plan, plans
from tvm_xengine.errors import MissingPackageError
from tvm_xengine.explain.memory import Memory
from tvm_xengine.explain.names import Names
from tvm_xengine.planning.plan import Plan
from tvm_xengine.report.figures import draw
from tvm_xengine.report.figures.memory_snapshot import memory_snapshot
from tvm_xengine.report.figures.trace import trace
from tvm_xengine.report.figures.write import FORMATS, figures, write_figures
from tvm_xengine.report.html.notebook import framed
from tvm_xengine.report.html.story import AGAIN, Story
from tvm_xengine.session.plans.plan_file import SavedPlan, write_plan

_BEGINS = {"pdf": b"%PDF", "png": b"\x89PNG", "svg": b"<?xml"}


def story_of(plan: Plan) -> Story:
    return Story(Memory(plan, Names(plan.problem.graph, {})))


def peak_of(story: Story, device: str) -> int:
    """Most bytes during a step; what is freed before the first one is not counted."""
    series = story.live_bytes(device).values()
    return max((sum(live) for live in zip(*series, strict=True)), default=0)


def snapshot_of(story: Story) -> Any:
    return pickle.loads(memory_snapshot(story))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Of the plan of a chain."""
    folder = tmp_path_factory.mktemp("figures") / "new" / "folder"
    return list(write_figures(story_of(chain_plan()), folder))


def test_every_picture_is_written_in_every_format(written: list[Path]) -> None:
    assert {path.name for path in written} == {
        f"{name}.{kind}" for name in ("memory_d0", "arena_d0", "timeline") for kind in FORMATS
    }
    for path in written:
        assert path.read_bytes().startswith(_BEGINS[path.suffix[1:]])


def test_the_same_plan_gives_the_same_files(written: list[Path], tmp_path: Path) -> None:
    again = write_figures(story_of(chain_plan()), tmp_path)
    assert [path.read_bytes() for path in written] == [path.read_bytes() for path in again]


def test_the_top_of_the_stack_is_the_peak() -> None:
    plan = chain_plan()
    (axes,) = draw.memory_over_time(story_of(plan), "d0").axes
    top = max(path.vertices[:, 1].max() for one in axes.collections for path in one.get_paths())
    assert top * 2**20 == pytest.approx(plan.simulation.peak_bytes["d0"])
    lines = sorted(line.get_ydata()[0] * 2**20 for line in axes.lines)
    budget = plan.problem.platform.device("d0").budget_bytes
    assert lines == pytest.approx(sorted([plan.arenas.arena_bytes["d0"], budget]))


def test_the_arena_map_has_a_rectangle_for_each_stay_and_workspace() -> None:
    story = story_of(chain_plan())
    (axes,) = draw.arena_map(story, "d0").axes
    assert sum(len(one.get_paths()) for one in axes.collections) == len(story.blocks)


def test_the_timeline_marks_what_is_recomputed() -> None:
    plan = chain_plan()
    story = story_of(plan)
    assert story.kinds.count(AGAIN) == plan.schedule.recomputed_ops > 0
    (axes,) = draw.timeline(story).axes
    bars = sum(len(one.get_paths()) for one in axes.collections)
    assert bars == len(story.steps)


def test_text_of_an_svg_is_text(written: list[Path]) -> None:
    (path,) = (path for path in written if path.name == "memory_d0.svg")
    tree = ElementTree.parse(path)
    texts = {"".join(one.itertext()) for one in tree.iter("{http://www.w3.org/2000/svg}text")}
    assert {"Memory of d0", "time [ms]", "live bytes [MiB]", "budget"} <= texts


@settings(max_examples=25)
@given(plans())
def test_every_plan_can_be_drawn(plan: Plan) -> None:
    story = story_of(plan)
    assert "timeline" in figures(story)
    assert framed("report", story)


@settings(max_examples=25)
@given(plans())
def test_a_trace_has_every_run_and_its_counters_reach_the_peak(plan: Plan) -> None:
    story = story_of(plan)
    events = json.loads(trace(story))["traceEvents"]
    runs = [one for one in events if one["ph"] == "X"]
    assert sum(one["dur"] for one in runs) == pytest.approx(plan.simulation.cost_us)
    live: dict[str, list[int]] = defaultdict(list)
    for one in events:
        if one["ph"] == "C":
            live[one["name"].split()[0]].append(sum(one["args"].values()))
    for device in plan.simulation.peak_bytes:
        assert max(live[device], default=0) == peak_of(story, device)


@settings(max_examples=25)
@given(plans())
def test_a_snapshot_replayed_never_overlaps_and_ends_as_its_segments_say(plan: Plan) -> None:
    story = story_of(plan)
    found = snapshot_of(story)
    devices = [device.name for device in plan.problem.platform.devices]
    for number, device in enumerate(devices):
        live: dict[int, int] = {}
        most = 0
        for event in found["device_traces"][number]:
            address, size = event["addr"], event["size"]
            if event["action"] == "alloc":
                assert all(a + s <= address or address + size <= a for a, s in live.items())
                live[address] = size
            elif event["action"] == "free_completed":
                assert live.pop(address) == size
            most = max(most, sum(live.values()))
        assert most == peak_of(story, device)
        segments = [one for one in found["segments"] if one["device"] == number]
        blocks = [block for one in segments for block in one["blocks"]]
        assert sum(b["size"] for b in blocks) == plan.arenas.arena_bytes[device]
        active = {b["address"]: b["size"] for b in blocks if b["state"] == "active_allocated"}
        assert active == live


def test_pytorchs_own_viewer_reads_a_snapshot() -> None:
    viewer = pytest.importorskip("torch.cuda._memory_viz")
    plan = chain_plan()
    found = snapshot_of(story_of(plan))
    replayed = viewer.trace(found)
    assert replayed.count("free completed") == sum(
        one["action"] == "free_completed" for one in found["device_traces"][0]
    )
    assert "segments: 1" in viewer.segsum(found)
    assert "snapshot.pickle" in viewer.trace_plot(found)
    assert "snapshot.pickle" in viewer.segment_plot(found)


def test_a_snapshot_names_nothing_that_runs_code() -> None:
    import pickletools

    opcodes = {op.name for op, _, _ in pickletools.genops(memory_snapshot(story_of(chain_plan())))}
    assert not opcodes & {"GLOBAL", "STACK_GLOBAL", "REDUCE", "INST", "OBJ", "NEWOBJ", "BUILD"}


def test_explain_writes_all_of_them(tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    write_plan(SavedPlan("", chain_plan(), {}, 0), saved)
    given_ = ("--figures", tmp_path / "f", "--trace", tmp_path / "t.json")
    more = ("--memory-snapshot", tmp_path / "s.pickle", "--solve-again", "0", "--quiet")
    done = run_command("explain", str(saved), *map(str, (*given_, *more)))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "f" / "timeline.pdf").exists()
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert pickle.loads((tmp_path / "s.pickle").read_bytes())["segments"]


def test_without_matplotlib_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingPackageError, match=r"tvm-xengine\[plot\]"):
        write_figures(story_of(chain_plan()), tmp_path / "f")
    assert not (tmp_path / "f").exists()


def test_a_notebook_shows_the_report_and_a_picture_of_each_device() -> None:
    story = story_of(chain_plan())
    cell = framed("a <b> & c", story)
    assert cell.startswith("<iframe srcdoc=")
    assert cell.count("Memory of d0 over time") == 1
    assert "a &amp;lt;b&amp;gt; &amp;amp; c" in cell


def test_numbers_of_a_picture_are_finite() -> None:
    for figure in figures(story_of(chain_plan())).values():
        for axes in figure.axes:
            assert np.isfinite([*axes.get_xlim(), *axes.get_ylim()]).all()
