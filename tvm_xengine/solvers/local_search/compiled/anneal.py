"""Compiled: simulated annealing over the decisions, with a penalty on exceeded budgets."""

from __future__ import annotations

import numpy as np

from tvm_xengine.solvers.compiled import entry, inner
from tvm_xengine.solvers.local_search.blocks import Surroundings
from tvm_xengine.solvers.local_search.compiled.decisions import Decisions
from tvm_xengine.solvers.local_search.compiled.decode import decode
from tvm_xengine.solvers.local_search.compiled.moves import propose
from tvm_xengine.solvers.local_search.compiled.random_source import RandomSource, below, undo
from tvm_xengine.solvers.local_search.compiled.scratch import Scratch
from tvm_xengine.solvers.local_search.compiled.view import Records, SearchView

_SHARE_STEP = 0.02
"""How fast the share of decisions within the budgets follows: its memory is some 50 decisions."""
_LOW_SHARE, _HIGH_SHARE = 0.3, 0.6
"""The penalty rises below the first share and falls above the second: the best schedules lie at the
edge of the budgets, so that about half of the decisions should be on either side."""
_PENALTY_STEP = 0.01
_LEAST_PENALTY = 1e-2
"""The penalty changes by this share at a time, and never falls below that."""

STATUS = np.dtype(
    [
        (name, "f8")
        for name in (
            "value",
            "excess",
            "best",
            "least_excess",
            "scale",
            "penalty",
            "most_penalty",
            "feasible_share",
            "temperature",
            "cooling",
        )
    ]
)
"""One record: of the current decisions the ``value`` and the ``excess``; the ``best`` value within
the budgets and the ``least_excess``; the value to which temperature and penalty are relative, the
``scale``; the penalty and its upper limit; the running ``feasible_share`` of decisions within
the budgets; the temperature, and the ``cooling``: the factor by which each change lowers it."""


def new_status(scale: float) -> Records:
    """The initial status."""
    status = np.zeros(1, dtype=STATUS)
    status["scale"] = scale
    return status


@entry
def anneal(
    g: SearchView,
    n: Surroundings,
    x: Decisions,
    best: Decisions,
    w: Scratch,
    c: RandomSource,
    status: Records,
    evaluations: int,
) -> None:
    """Improve `x` by random changes while the temperature falls.

    The best decisions within the budgets are left in `best`, or those that exceed them least
    as long as there are none. Calls can be cut into shorter ones without changing what happens.
    """
    for _ in range(evaluations):
        status[0].temperature *= status[0].cooling
        propose(g, n, x, w, c, status[0].excess > 0.0)
        if c.logged[0] == 0:
            continue
        value, excess = decode(g, x, w)
        worse = (value - status[0].value) / status[0].scale
        worse += status[0].penalty * (excess - status[0].excess)
        draw = below(c, 1 << 30) / float(1 << 30)
        if value < np.inf and (worse <= 0.0 or draw < np.exp(-worse / status[0].temperature)):
            status[0].value, status[0].excess = value, excess
            if excess < status[0].least_excess or (excess == 0.0 and value < status[0].best):
                status[0].least_excess = excess
                if excess == 0.0:
                    status[0].best = value
                _remember(best, x)
        else:
            undo(x, c)
        inside = 1.0 if status[0].excess == 0.0 else 0.0
        status[0].feasible_share += _SHARE_STEP * (inside - status[0].feasible_share)
        if status[0].feasible_share < _LOW_SHARE:
            status[0].penalty = min(
                status[0].penalty * (1.0 + _PENALTY_STEP), status[0].most_penalty
            )
        elif status[0].feasible_share > _HIGH_SHARE:
            status[0].penalty = max(status[0].penalty * (1.0 - _PENALTY_STEP), _LEAST_PENALTY)


@inner
def _remember(to: Decisions, x: Decisions) -> None:
    """Make `to` equal to `x`."""
    for place in range(len(x.order)):
        to.order[place] = x.order[place]
    for i in range(len(x.position)):
        to.position[i] = x.position[i]
        to.device[i] = x.device[i]
        to.redevice[i] = x.redevice[i]
        to.ahead[i] = x.ahead[i]
    for interval in range(len(x.keep)):
        to.keep[interval] = x.keep[interval]
        to.push[interval] = x.push[interval]
        to.level[interval] = x.level[interval]
