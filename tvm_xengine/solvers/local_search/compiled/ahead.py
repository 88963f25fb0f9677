"""Compiled: random changes of moves in the middle of an interval."""

from __future__ import annotations

from tvm_xengine.solvers.compiled import inner
from tvm_xengine.solvers.indexed import NONE
from tvm_xengine.solvers.local_search.blocks import Surroundings
from tvm_xengine.solvers.local_search.compiled.decisions import BRING, Decisions, moved
from tvm_xengine.solvers.local_search.compiled.intervals import any_return, begin_of, interval_at
from tvm_xengine.solvers.local_search.compiled.random_source import (
    AHEAD,
    RandomSource,
    below,
    change,
)
from tvm_xengine.solvers.local_search.compiled.scratch import TRANSFER, Scratch
from tvm_xengine.solvers.local_search.compiled.view import SearchView


@inner
def bring_ahead(g: SearchView, n: Surroundings, x: Decisions, w: Scratch, c: RandomSource) -> None:
    """Bring back earlier what the last decode brings back, or only when it is needed again."""
    if below(c, 2) == 0:
        start = below(c, len(x.order))
        for k in range(len(x.order)):
            i = x.order[(start + k) % len(x.order)]
            if x.ahead[i] >= 0:
                change(x, c, AHEAD, i, NONE)
                return
    for _ in range(30):
        t, d, place = any_return(g, x, w, c)
        if t >= 0:
            since = begin_of(g, x, interval_at(g, n, x, t, place))
            move_between(g, x, c, t, since, place, moved(t, d, len(g.device), BRING))
            return


@inner
def move_between(
    g: SearchView, x: Decisions, c: RandomSource, t: int, since: int, place: int, move: int
) -> None:
    """Make a move of t (see `moved`) after one of the ops from `since` on and before that at `place`."""
    if since < place:
        to = last_chance(g, x, t, since, place)
        if to < 0 or below(c, 2) == 0:
            to = since + below(c, place - since)
        change(x, c, AHEAD, x.order[to], move)


@inner
def last_chance(g: SearchView, x: Decisions, t: int, since: int, place: int) -> int:
    """Place before something that t is made from is overwritten, from `since` on; -1 if it is not."""
    i = g.tensor[t].producer
    to = place
    if i >= 0:
        for k in range(g.op[i].read_at, g.op[i + 1].read_at):
            update = g.tensor[g.read[k]].updated_by
            if update >= 0 and since < x.position[update] < to:
                to = x.position[update]
    return to - 1 if to < place else -1


@inner
def return_earlier(x: Decisions, w: Scratch, c: RandomSource, step: int, devices: int) -> None:
    """What returns to the device of a step for its op returns one op earlier.

    So it leaves the device where it waited before something else goes there.
    """
    place, d = w.step[step].place, w.step[step].src
    s = step - 1
    while place > 0 and s >= 0 and w.step[s].place == place:
        if w.step[s].kind == TRANSFER and w.step[s].dst == d:
            change(x, c, AHEAD, x.order[place - 1], moved(w.step[s].item, d, devices, BRING))
            return
        s -= 1
