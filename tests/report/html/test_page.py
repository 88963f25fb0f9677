"""A report is one file that shows the plan's numbers, and a browser finds no fault in it."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings

from tests.explain.plans import chain_plan, plans
from tests.report.html.browser import WIDTHS, look
from tests.shares import first
from tests.strategies import cases
from tvm_xengine.explain.explanation import ExplainOptions, explain_plan
from tvm_xengine.explain.memory import Memory
from tvm_xengine.explain.names import Names
from tvm_xengine.explain.prices.front import FrontPoint
from tvm_xengine.planning.plan import Plan
from tvm_xengine.report.html.breakable import breakable
from tvm_xengine.report.html.front_picture import front_picture
from tvm_xengine.report.html.layers import Layers, ops_by_layer
from tvm_xengine.report.html.page import Page
from tvm_xengine.report.html.pictures import phases, timeline
from tvm_xengine.report.html.story import Story
from tvm_xengine.report.html.svg import WIDTH, stairs
from tvm_xengine.scheduling.durations import format_us

_VOID = {"meta", "input", "br", "wbr"}


class _Reader(HTMLParser):
    """Collects elements and refuses unbalanced ones."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def _page(plan: Plan, names: dict[str, tuple[str, ...]] | None = None, seconds: float = 0.0) -> str:
    known = Names(plan.problem.graph, names or {})
    found = explain_plan(plan, ExplainOptions(None, seconds, seconds), names)
    return Page("a & b <c>", plan, known, found).html()


def _read(page: str) -> _Reader:
    reader = _Reader()
    reader.feed(page)
    assert not reader.open
    return reader


@settings(max_examples=cases(40))
@given(plans())
def test_the_pictures_add_up_to_the_live_bytes_of_the_validator(plan: Plan) -> None:
    memory = Memory(plan, Names(plan.problem.graph))
    story = Story(memory)
    for device, live in memory.live.items():
        series = story.live_bytes(device).values()
        totals = [sum(column) for column in zip(*series, strict=True)] or [0] * len(story.steps)
        assert totals == [live[position] for position in story.positions]


@settings(max_examples=10)
@given(plans())
def test_every_page_is_well_formed_and_asks_nothing_of_the_network(plan: Plan) -> None:
    page = _page(plan)
    reader = _read(page)
    for tag, attributes in reader.found:
        assert tag not in ("link", "iframe", "img")
        assert "src" not in attributes
    assert not re.search(r"https?://|@import|url\(", page)


def test_every_tensor_has_a_row_and_every_stay_a_rectangle() -> None:
    plan = chain_plan()
    found = _read(_page(plan)).found
    rows = {a["data-name"] for tag, a in found if tag == "tr" and "data-name" in a}
    assert rows == {one.label for one in explain_plan(plan).tensors}
    blocks = [a for tag, a in found if tag == "rect" and "block" in (a.get("class") or "")]
    story = Story(Memory(plan, Names(plan.problem.graph)))
    assert len(blocks) == 2 * len(story.blocks)  # by step and by time


def test_names_cannot_end_an_element_or_a_script() -> None:
    plan = chain_plan()
    page = _page(plan, {"a0": ("</script><b>x",)})
    reader = _read(page)
    assert "b" not in {tag for tag, _ in reader.found}
    data = re.search(r'id="story">(.*?)</script>', page)
    assert data is not None
    assert any("</script>" in block[1] for block in json.loads(data.group(1))["blocks"])


def test_every_op_is_in_a_box_of_the_graph_and_in_the_list_of_its_layer() -> None:
    plan = chain_plan()
    layers = Layers(Memory(plan, Names(plan.problem.graph)))
    took = sum(us for busy in layers.busy_us.values() for us in busy.values())
    assert took == pytest.approx(plan.simulation.cost_us)
    listed = "".join(ops_by_layer(layers))
    assert all(f"<td>{breakable(op.name)}</td>" in listed for op in plan.problem.graph.ops)


def test_the_passes_are_named_above_the_picture_and_meet_at_the_loss() -> None:
    plan = chain_plan()
    story = Story(Memory(plan, Names(plan.problem.graph)))
    loss = plan.problem.graph.producer[plan.problem.graph.outputs[0]]
    first = next(k for k, step in enumerate(story.steps) if getattr(step, "op", "") == loss)
    assert story.first_backward == first + 1
    shown = phases(story, "step")
    share = 100 * (first + 1) / len(story.steps)
    assert f"width:{share:.1f}".removesuffix(".0") in shown
    assert _page(plan).count("backward and update") == 2


def test_what_was_measured_stands_below_what_was_planned() -> None:
    plan = chain_plan()
    story = Story(Memory(plan, Names(plan.problem.graph)))
    measured = {position: (float(k), k + 0.5) for k, position in enumerate(story.positions)}
    shown = "".join(timeline(story, measured))
    assert shown.count('class="run') == 2 * len(story.steps)
    assert f"measured: {format_us(len(story.steps) / 2)} busy" in shown


def test_what_is_found_holds_for_more_memory_and_what_is_proven_for_less() -> None:
    points = [FrontPoint(1024, 40.0, 20.0), FrontPoint(2048, 30.0, 10.0)]
    shown = front_picture(points, "cpu", 2048, "us")
    bound, best = (re.search(rf'"{name}" d="(.*?)"', shown) for name in ("bound", "best"))
    assert bound is not None and re.fullmatch(r"M\S+ \S+V\S+H\S+", bound[1])  # falls, then on
    assert best is not None and re.fullmatch(r"M\S+ \S+H\S+V\S+", best[1])  # on, then falls
    assert all(label in shown for label in ("1 KiB", "2 KiB", "40 us", "4 us"))


def test_a_layer_counts_its_tensors_apart_from_its_ops() -> None:
    plan = chain_plan()
    layers = Layers(Memory(plan, Names(plan.problem.graph)))
    heads = re.findall(r": (\d+) ops?, (\d+) tensors?: (.*?)<", "".join(ops_by_layer(layers)))
    assert sum(int(ops) for ops, _, _ in heads) == len(plan.problem.graph.ops)
    for _, tensors, told in heads:
        assert sum(map(int, re.findall(r"\d+", told))) == int(tensors)


def test_stairs_enclose_the_area_between_two_step_functions() -> None:
    path = stairs([0.0, 10.0, 20.0], [5.0, 5.0], [1.0, 3.0])
    assert path == "M0 1H10V3H20V5H0Z"
    assert stairs([0.0, WIDTH], [4.0], [2.0]) == "M0 2H1000V4H0Z"


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
@pytest.mark.parametrize("is_dark", first(1, (False, True)), ids=["light", "dark"])
def test_a_browser_finds_no_fault_at_any_width(tmp_path: Path, *, is_dark: bool) -> None:
    plan = chain_plan()
    long = "max_pool_backward1_relu_backward3_conv2d_add_relu_12of16"  # as fused ops of slices are named
    names = {tensor.name: (f"{long}_{tensor.name}",) for tensor in plan.problem.graph.tensors}
    seen = look(_page(plan, names, seconds=1.0), tmp_path, is_dark=is_dark)
    assert not seen.console
    assert len(seen.found) == len(WIDTHS)
    for found in seen.found:
        assert not found["errors"]
        assert found["moved"] and found["focused"]  # by arrow keys
        assert found["ends"] == [0, found["last"]]  # by Home and End
        assert found["framed"] > 0  # what a search finds, without a pointer
        assert not found["clipped"]
        assert found["texts"] > 50
        assert found["contrast"] >= 4.5  # WCAG 2.2, success criterion 1.4.3
        assert found["overflow"] <= 0
        assert not found["unnamed"]
        assert found["found"].startswith("0 of ")  # the search has run
        assert found["dark"] is is_dark
        sections = ["In short", "Memory", "Cost against budget", "Timeline", "Graph", "Tensors"]
        assert found["sections"] == sections
