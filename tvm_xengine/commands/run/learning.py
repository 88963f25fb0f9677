"""The loss and its curve while a model learns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

from tvm_xengine.commands.terminal import Terminal
from tvm_xengine.cost_models.measure.sentinel import BETWEEN_STEPS_S, Sentinel
from tvm_xengine.session.loop.workload import FitProgress

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 32
"""Columns of the curve; a line with its numbers has fewer than 80."""
_LINES = 20
"""Plain lines of a run, one per interval."""
_LEAST_S = 0.05
"""Between two changes of the display, which a person could not tell apart."""


@dataclass
class Curve:
    """Losses and step times as they come, and how fast the processor is meanwhile."""

    losses: list[float] = field(default_factory=list)
    step_us: list[float] = field(default_factory=list)
    sentinel: Sentinel = field(default_factory=partial(Sentinel, BETWEEN_STEPS_S))
    sentinels_us: list[float] = field(default_factory=list)

    def add(self, progress: FitProgress, step_us: float) -> None:
        """Note a step; the validation at the end of an epoch is none."""
        if not progress.validation:
            self.losses.append(progress.loss)
            self.step_us.append(step_us)
            self.sentinels_us.append(self.sentinel.time_us())


def sparkline(values: list[float], width: int = _WIDTH) -> str:
    """The values as a line of bars, averaged over equal parts."""
    if not values:
        return ""
    parts = min(width, len(values))
    bounds = [k * len(values) // parts for k in range(parts + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(bounds)]
    low, span = min(means), (max(means) - min(means)) or 1.0
    return "".join(_BARS[round((mean - low) / span * (len(_BARS) - 1))] for mean in means)


@contextmanager
def showing(terminal: Terminal, steps: int) -> Iterator[Callable[[FitProgress], None]]:
    """A display of the training: a live one on a terminal, a line per interval elsewhere."""
    with showing_each(terminal, {"": steps}) as show:
        yield show[""]


@contextmanager
def showing_each(
    terminal: Terminal, steps: Mapping[str, int]
) -> Iterator[Mapping[str, Callable[[FitProgress], None]]]:
    """The same for several trainings by name, which stands in front of what is said of each."""
    said = {name: f"{name}: " if name else "" for name in steps}
    if not terminal.console.is_terminal:
        yield {name: _lines(terminal, count, said[name]) for name, count in steps.items()}
        return
    from rich.live import Live
    from rich.text import Text

    losses: dict[str, list[float]] = {name: [] for name in steps}
    lines = dict.fromkeys(steps, "")
    shown_s = 0.0
    with Live(console=terminal.console, transient=True, auto_refresh=False) as live:

        def show(name: str, progress: FitProgress) -> None:
            nonlocal shown_s
            if progress.validation:
                terminal.note(said[name] + _epoch(progress))
                return
            losses[name].append(progress.loss)
            if time.monotonic() - shown_s >= _LEAST_S:
                shown_s = time.monotonic()
                line = f"{said[name]}step {progress.step}/{steps[name]}  loss {progress.loss:.4f}  "
                lines[name] = line + sparkline(losses[name])
                live.update(Text("\n".join(filter(None, lines.values()))), refresh=True)

        yield {name: partial(show, name) for name in steps}
    for name, found in losses.items():
        if found:
            terminal.note(f"{said[name]}loss {sparkline(found)}")


def _lines(terminal: Terminal, steps: int, said: str) -> Callable[[FitProgress], None]:
    every = max(1, steps // _LINES)

    def show(progress: FitProgress) -> None:
        if progress.validation:
            terminal.note(said + _epoch(progress))
        elif progress.step % every == 0 or progress.step == steps:
            terminal.note(f"{said}step {progress.step}/{steps}  loss {progress.loss:.4f}")

    return show


def _epoch(progress: FitProgress) -> str:
    found = ", ".join(f"{name} {value:.4f}" for name, value in progress.validation.items())
    return f"epoch {progress.epoch + 1}, step {progress.step}: validation {found}"
