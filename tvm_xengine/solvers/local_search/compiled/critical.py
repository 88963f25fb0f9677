"""Compiled: random changes of the steps that the makespan waits for."""

from __future__ import annotations

from tvm_xengine.solvers.compiled import inner
from tvm_xengine.solvers.indexed import NONE
from tvm_xengine.solvers.local_search.blocks import Surroundings
from tvm_xengine.solvers.local_search.compiled.decisions import Decisions
from tvm_xengine.solvers.local_search.compiled.random_source import RandomSource, below
from tvm_xengine.solvers.local_search.compiled.reorder import move_earlier, run_stretch
from tvm_xengine.solvers.local_search.compiled.scratch import STEPS, TRANSFER, Scratch
from tvm_xengine.solvers.local_search.compiled.view import SearchView

_SAME = 1e-9
"""Share of the makespan: times that differ by less are the same."""


@inner
def shorten(g: SearchView, n: Surroundings, x: Decisions, w: Scratch, c: RandomSource) -> None:
    """Run an op of a critical step elsewhere or earlier; only such a change can shorten the makespan.

    A copy disappears where its reader runs at its source, or what it copies is made where it is read.
    """
    s = _critical_step(g, w, c)
    if s < 0 or w.step[s].place >= len(x.order):
        return
    reader = x.order[w.step[s].place]
    if w.step[s].kind == TRANSFER:
        maker = g.tensor[w.step[s].item].producer
        dice = below(c, 3)
        if dice == 0:
            _run_on(g, x, c, reader, w.step[s].src)
        elif dice == 1 and maker >= 0:
            _run_on(g, x, c, maker, w.step[s].dst)
        elif maker >= 0:
            move_earlier(n, x, c, maker)
        return
    dice = below(c, 4)
    if dice < 2:
        move_earlier(n, x, c, reader)
    else:
        length = 1 if dice == 2 else 1 + below(c, 1 << (1 + below(c, 6)))
        run_stretch(g, x, c, x.position[reader], length, below(c, len(g.device)))


@inner
def _run_on(g: SearchView, x: Decisions, c: RandomSource, i: int, d: int) -> None:
    if x.position[i] >= 0:
        run_stretch(g, x, c, x.position[i], 1, d)


@inner
def _critical_step(g: SearchView, w: Scratch, c: RandomSource) -> int:
    """A random step of a chain from the end of the last decode back, each waited for by the next; or -1."""
    last = 0.0
    for s in range(w.counted[STEPS]):
        last = max(last, w.step[s].end_us)
    awaited, chosen, count = last, NONE, 0
    for back in range(w.counted[STEPS]):
        s = w.counted[STEPS] - 1 - back
        wait = awaited - w.step[s].end_us
        if abs(wait) <= _SAME * last or abs(wait - g.handover) <= _SAME * last:
            awaited = w.step[s].begin_us
            count += 1
            if below(c, count) == 0:
                chosen = s
    return chosen
