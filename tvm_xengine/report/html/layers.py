"""The graph of a step, its ops folded into layers, by device and by fate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape

from tvm_xengine.explain.categories import before_the_loss
from tvm_xengine.explain.fates import Fate, fates
from tvm_xengine.explain.memory import Memory
from tvm_xengine.report.html.breakable import breakable
from tvm_xengine.report.html.svg import attributes, picture, rectangle
from tvm_xengine.scheduling.durations import format_us
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.scheduling.schedule import Compute
from tvm_xengine.scheduling.simulate import step_us
from tvm_xengine.scheduling.sizes import format_bytes

_WIDTH, _ROW, _BOX = 360.0, 24.0, 18.0
"""Units of the picture: as wide as a phone, so that its text can be read there; rows of one line."""
_FORWARD, _BACKWARD, _BOX_WIDTH = 50.0, 226.0, 96.0
"""Left edges and width of the two columns; between them lies what the backward pass reads."""
_MOST_BEND = 44.0
"""How far the line of a skip connection bends away from its column."""
_LETTERS = 14
"""Of a layer's name that fit in its box; the end of a name tells layers apart."""
_DEVICE_COLOURS = 6
"""Colours in the style sheet; further devices repeat them, with their names under the pointer."""
NO_LAYER = "no layer"
_WORD = {
    Fate.RECOMPUTED: "recomputed",
    Fate.MOVED: "copied",
    Fate.STATE: "new state in place",
    Fate.KEPT: "kept",
    Fate.UNUSED: "never read",
}


@dataclass(frozen=True)
class Layers:
    """The layers of a step: their ops in the forward and the backward pass, and what flows between.

    A node of the folded graph is a layer and whether it is its backward pass.
    """

    memory: Memory

    @cached_property
    def node(self) -> Mapping[str, tuple[str, bool]]:
        """The node of each op."""
        graph, layer = self.memory.plan.problem.graph, self.memory.names.layer
        forward = before_the_loss(graph)
        return {
            op.name: (layer[op.name] or NO_LAYER, not forward.intersection(op.outputs))
            for op in graph.ops
        }

    @cached_property
    def rows(self) -> Sequence[str]:
        """Layers in the order in which they first run."""
        return list(dict.fromkeys(layer for layer, _ in self.node.values()))

    @cached_property
    def busy_us(self) -> Mapping[tuple[str, bool], Mapping[str, float]]:
        """Time of each node on each device, recomputations included."""
        plan = self.memory.plan
        found: dict[tuple[str, bool], dict[str, float]] = {}
        for step in plan.schedule.steps:
            if isinstance(step, Compute):
                took = found.setdefault(self.node[step.op], {})
                took[step.device] = took.get(step.device, 0.0) + step_us(plan.problem, step)
        return found

    @cached_property
    def flows(self) -> Mapping[tuple[tuple[str, bool], tuple[str, bool]], Mapping[Fate, int]]:
        """Bytes that go from one node to another, by the fate of their tensors."""
        graph = self.memory.plan.problem.graph
        found: dict[tuple[tuple[str, bool], tuple[str, bool]], Counter[Fate]] = {}
        for name, fate in fates(self.memory.plan).items():
            maker = graph.producer.get(name)
            if maker is None or graph.tensor[name].role is not Role.INTERMEDIATE:
                continue
            size = graph.tensor[name].size_bytes
            for to in dict.fromkeys(self.node[reader] for reader in graph.consumers[name]):
                if to != self.node[maker]:
                    found.setdefault((self.node[maker], to), Counter())[fate.fate] += size
        return found


def graph_of_layers(layers: Layers) -> str:
    """Two columns of layers, forward and backward, and lines for the tensors between them."""
    place = {layer: k for k, layer in enumerate(layers.rows)}
    parts = [
        f"<text{attributes(x=x, y=11, class_='head')}>{name}</text>"
        for name, x in (("forward", _FORWARD), ("backward", _BACKWARD))
    ]
    parts += _lines(layers, place)
    devices = list(layers.memory.plan.problem.platform.index)
    for (layer, is_backward), busy in layers.busy_us.items():
        x = _BACKWARD if is_backward else _FORWARD
        parts += _box(layer, x, _ROW * (place[layer] + 1), busy, devices)
    label = "Layers of the step, forward and backward, coloured by device, with their tensors"
    height = _ROW * (len(place) + 1)
    return picture(label, height, parts, _WIDTH, class_="layers")


def ops_by_layer(layers: Layers) -> Iterator[str]:
    """For each layer its ops, folded: where they run, how often, and what becomes of their results."""
    plan, found = layers.memory.plan, fates(layers.memory.plan)
    runs = Counter((s.op, s.device) for s in plan.schedule.steps if isinstance(s, Compute))
    where: dict[str, list[str]] = {}
    for (name, device), count in runs.items():
        where.setdefault(name, []).append(device if count == 1 else f"{device}, {count} times")
    for layer in layers.rows:
        ops = [op for op in plan.problem.graph.ops if layers.node[op.name][0] == layer]
        treated = Counter(found[name].fate for op in ops for name in op.outputs if name in found)
        told = ", ".join(f"{count} {_WORD[fate]}" for fate, count in treated.items())
        counts = f"{_counted(len(ops), 'op')}, {_counted(treated.total(), 'tensor')}"
        yield f"<details><summary>{escape(layer)}: {counts}: {told}</summary>"
        yield "<div class='tables'><table><thead><tr><th>op</th><th>runs on</th><th>its first result is</th>"
        yield "</tr></thead><tbody>"
        for op in ops:
            fate = next((_WORD[found[name].fate] for name in op.outputs if name in found), "")
            runs_on = escape("; ".join(where.get(op.name, ["not run"])))
            yield f"<tr><td>{breakable(op.name)}</td><td>{runs_on}</td><td>{fate}</td></tr>"
        yield "</tbody></table></div></details>"


def legend_of_layers(layers: Layers) -> str:
    """What the colours of boxes and lines mean."""
    devices = [device.name for device in layers.memory.plan.problem.platform.computing]
    keys = [
        f'<li><i class="d-{k % _DEVICE_COLOURS}"></i>{escape(name)}</li>'
        for k, name in enumerate(devices)
    ]
    shown = dict.fromkeys(fate for flow in layers.flows.values() for fate in flow)
    keys += [f'<li><i class="key-{fate.value}"></i>{_WORD[fate]}</li>' for fate in shown]
    return f'<ul class="legend">{"".join(keys)}</ul>'


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _box(
    layer: str, x: float, y: float, busy: Mapping[str, float], devices: Sequence[str]
) -> Iterator[str]:
    """A box for a layer, its width shared by the devices as its time is."""
    total = sum(busy.values())
    took = ", ".join(f"{format_us(us)} on {device}" for device, us in busy.items())
    left = x
    for device, us in busy.items():
        width = _BOX_WIDTH * (us / total if total else 1 / len(busy))
        colour = f"d-{devices.index(device) % _DEVICE_COLOURS}"
        yield rectangle(left, y, width, _BOX, f"{layer}: {took}", class_=f"node {colour}")
        left += width
    short = layer if len(layer) <= _LETTERS else f"…{layer[1 - _LETTERS :]}"
    yield f"<text{attributes(x=x + 4, y=y + 13)}>{escape(short)}</text>"


def _lines(layers: Layers, place: Mapping[str, int]) -> Iterator[str]:
    most = max((sum(flow.values()) for flow in layers.flows.values()), default=1)
    for ((src, src_back), (dst, dst_back)), flow in layers.flows.items():
        fate = max(flow, key=lambda one: (one in (Fate.RECOMPUTED, Fate.MOVED), flow[one]))
        title = f"{src} to {dst}: " + ", ".join(
            f"{format_bytes(size)} {_WORD[one]}" for one, size in flow.items()
        )
        y1, y2 = (_ROW * (place[one] + 1) + _BOX / 2 for one in (src, dst))
        width = 0.75 + 2.5 * (sum(flow.values()) / most) ** 0.5
        style = attributes(class_=f"flow f-{fate.value}", stroke_width=width)
        path = _path(src_back, dst_back, y1, y2)
        yield f'<path d="{path}"{style}><title>{escape(title)}</title></path>'


def _path(from_backward: bool, to_backward: bool, y1: float, y2: float) -> str:
    """Straight across between the columns; within a column an arc on its outer side."""
    if from_backward != to_backward:
        x1, x2 = _FORWARD + _BOX_WIDTH, _BACKWARD
        if from_backward:
            x1, x2 = x2, x1
        bend = (x1 + x2) / 2
        return f"M{x1:.0f} {y1:.0f}C{bend:.0f} {y1:.0f} {bend:.0f} {y2:.0f} {x2:.0f} {y2:.0f}"
    side = 1 if from_backward else -1
    x = _BACKWARD + _BOX_WIDTH if from_backward else _FORWARD
    bend = x + side * min(_MOST_BEND, 6 + abs(y2 - y1) / 6)
    return f"M{x:.0f} {y1:.0f}C{bend:.0f} {y1:.0f} {bend:.0f} {y2:.0f} {x:.0f} {y2:.0f}"
