"""Compiled: simulated annealing over the decisions, with a penalty on exceeded budgets."""

from __future__ import annotations

import numpy as np

from tvm_xengine.solvers.compiled import entry, inner
from tvm_xengine.solvers.local_search.arrays import Floats
from tvm_xengine.solvers.local_search.blocks import Surroundings
from tvm_xengine.solvers.local_search.chance import Chance, below, take_back
from tvm_xengine.solvers.local_search.decisions import Decisions
from tvm_xengine.solvers.local_search.decoder import decode
from tvm_xengine.solvers.local_search.moves import propose
from tvm_xengine.solvers.local_search.static import Static
from tvm_xengine.solvers.local_search.work import Work

VALUE, EXCESS, BEST, LEAST_EXCESS, SCALE, PENALTY, MOST_PENALTY, FEASIBLE_SHARE, TEMPERATURE = (
    range(9)
)
"""What the status array of `anneal` holds: of the current decisions the objective and the
excess, the best objective within the budgets, the least excess, the objective that temperature
and penalty are relative to, the penalty and its upper limit, the running share of decisions
within the budgets, and the temperature."""


@entry
def anneal(
    g: Static,
    n: Surroundings,
    x: Decisions,
    best: Decisions,
    w: Work,
    c: Chance,
    status: Floats,
    cooling: float,
    evaluations: int,
    places: bool,
) -> None:
    """Improve `x` by random changes while the temperature falls by the factor `cooling` each.

    The best decisions within the budgets are left in `best`, or those that exceed them least
    as long as there are none. Calls can be cut into shorter ones without changing what happens.
    """
    for _ in range(evaluations):
        status[TEMPERATURE] *= cooling
        propose(g, n, x, w, c, status[EXCESS] > 0.0, places)
        if c.logged[0] == 0:
            continue
        value, excess = decode(g, x, w)
        worse = (value - status[VALUE]) / status[SCALE]
        worse += status[PENALTY] * (excess - status[EXCESS])
        chance = below(c, 1 << 30) / float(1 << 30)
        if value < np.inf and (worse <= 0.0 or chance < np.exp(-worse / status[TEMPERATURE])):
            status[VALUE], status[EXCESS] = value, excess
            if excess < status[LEAST_EXCESS] or (excess == 0.0 and value < status[BEST]):
                status[LEAST_EXCESS] = excess
                if excess == 0.0:
                    status[BEST] = value
                _remember(best, x)
        else:
            take_back(x, c)
        inside = 1.0 if status[EXCESS] == 0.0 else 0.0
        status[FEASIBLE_SHARE] += 0.02 * (inside - status[FEASIBLE_SHARE])
        if status[FEASIBLE_SHARE] < 0.3:
            status[PENALTY] = min(status[PENALTY] * 1.01, status[MOST_PENALTY])
        elif status[FEASIBLE_SHARE] > 0.6:
            status[PENALTY] = max(status[PENALTY] * 0.99, 1e-2)


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
    for gap in range(len(x.keep)):
        to.keep[gap] = x.keep[gap]
        to.push[gap] = x.push[gap]
        to.level[gap] = x.level[gap]
