"""Every threshold of the portfolio, with its unit and its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PortfolioOptions:
    """When which part of the portfolio works, and for how long.

    Sizes are counts of ops; shares are of the time that is left, unless said otherwise. The numbers
    are settings by hand; no record of how they were tuned exists.

    Attributes
    ----------
    tiny_ops, tiny_limit_s
        Up to so many ops A* is tried first, for so long: it proves the optimum at once.
    small_ops, patience_s
        Up to so many ops the local search rests when it has found nothing better for so long, since
        the proof then needs the core more.
    cost_share
        For the cheapest schedule, from which the makespan is then improved.
    nap_s
        Between looks at what has changed; short beside the least solve.
    open_ops, walk_first_s
        Up to so many ops all states are searched, or one relaxation leaves the order of first runs
        open. So long a proof for some schedules only does not end such a search.
    general_share
        Of the time limit. Otherwise a proof for some schedules only ends the solve after it: a
        schedule outside may be better.
    exact_ops, beside_ops, head_start_s
        Up to so many ops the stage model is tried after the relaxations, or beside them. It first
        waits so long for a schedule to begin from.
    turns_ops
        Beyond so many ops the given order comes after all that can be proven for every schedule.
    max_columns
        Relaxations with more columns are not attempted, to bound time and memory.
    gap_share, rough_gap_ratio, larger_gap_ratio, finest_gap_ratio
        A relaxation is solved to this share of the gap that is left to prove; the first to the rough
        ratio at most, those with better chosen time points to the larger one, since where no
        candidate raises them all that is left of the gap is what there is to prove. The finest is for
        the last that could be solved.
    again_share
        Where more time points ask for too much time, for the last that did not.
    least_solve_s, solve_share, small_solve_share
        One relaxation gets the share, but a few seconds at least; on small graphs, where one that is
        solved to its end proves more than another with more time points, the second share.
    branching_share
        For choosing among time points by strong branching on their LPs.
    first_time_points, most_time_points
        Of a relaxation in the order of a schedule: at its beginning, and where the series ends.
    refine_share, least_refine_s
        One relaxation in the order of a schedule gets this share, but so much at least.
    most_idle, rounds_between
        Rounds without anything to try, after which that ends; so many rounds are in the incumbent's
        order before one that is proposed has its turn.
    """

    tiny_ops: int = 6
    tiny_limit_s: float = 3.0
    small_ops: int = 60
    patience_s: float = 2.0
    cost_share: float = 0.2
    nap_s: float = 0.02
    open_ops: int = 24
    walk_first_s: float = 8.0
    general_share: float = 0.5
    exact_ops: int = 100
    beside_ops: int = 60
    head_start_s: float = 1.0
    turns_ops: int = 200
    max_columns: int = 60_000
    gap_share: float = 0.2
    rough_gap_ratio: float = 5e-3
    larger_gap_ratio: float = 2e-3
    finest_gap_ratio: float = 1e-4
    again_share: float = 0.8
    least_solve_s: float = 3.0
    solve_share: float = 0.3
    small_solve_share: float = 0.7
    branching_share: float = 0.1
    first_time_points: int = 2
    most_time_points: int = 24
    refine_share: float = 0.15
    least_refine_s: float = 2.0
    most_idle: int = 10
    rounds_between: int = 1


DEFAULTS = PortfolioOptions()
"""What a solve uses."""
