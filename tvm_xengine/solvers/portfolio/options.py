"""Every threshold of the portfolio, with its unit and what it trades."""

from __future__ import annotations

from dataclasses import dataclass, field

from tvm_xengine.solvers.relaxation.options import RelaxationOptions


@dataclass(frozen=True)
class PortfolioOptions:
    """Which parts of the portfolio work, when, and for how long.

    Shares are of the time that is left, unless said otherwise. Set by hand: the reasons say what each
    trades, and no script has derived or checked the numbers.

    Attributes
    ----------
    tiny_ops, tiny_limit_s
        Ops, seconds. Up to so many ops A* runs first and alone: it proves their optimum in
        milliseconds, and starting threads and processes takes longer. The limit is for the few whose
        state space is large all the same.
    small_ops, patience_s, slow_rest_s
        Ops, seconds, seconds. Up to so many ops the search rests so long after each of its slices, which
        take a third of that, when it has found nothing better for so long. It has then seen millions of
        decisions, and on two cores the proof is what is missing; a longer patience delays the proof.
    tick_s
        Seconds between looks at the clock and at interruptions. An event is handled at once; this
        bounds only how late the limit is seen, and costs 50 wake-ups a second.
    leave_s
        Seconds. So long the loop waits for its workers in the end: a slice of the search takes 0.05 s
        and the end of a worker process as much, so only compiling and formulating take longer, which
        cannot be interrupted. It is part of the 2 s that a plan may take beyond its limit.
    cost_share
        For the cheapest schedule, from which the makespan is then improved: makespan has plateaus
        that cost has not, so a search that begins from a cheap schedule ends lower. With twice the share,
        makespans are 0.8 % longer at 2 units of work (40 searches), equal at 4 (15) and 2 % longer at 10 (5).
    open_ops, walk_first_s
        Ops, seconds. Up to so many ops A* works in parallel with the relaxations, or one relaxation leaves
        the order of first runs open: its columns grow with the square of the ops. So long a proof for some
        schedules only does not end the solve, because A* proves most of these graphs for every
        schedule by then (``benchmarks/solvers/test_astar.py``).
    walk_share
        Of the work that is left, for A* where work is counted; the rest is for relaxations, where A* does
        not end.
    general_share
        Of the time limit. Until then a proof for some schedules only does not end the solve, since a
        schedule outside may be better. It trades the time of an answer against the scope of its proof.
    far_ratio, far_share
        Ratio of the best value, share of the time limit. While the bound for every schedule is farther
        below the best schedule than the ratio, a proof for some schedules only does not end the solve
        before that share: one order of first runs may cost a multiple of another (LeNet on two
        devices at 0.7: 4,079 and 1,658 us). The rest of the limit is kept for the answer.
    exact_ops, parallel_ops, head_start_s
        Ops, ops, seconds. Up to so many ops the stage model is tried, after the relaxations or in parallel
        with them. It has a column for each pair of ops and device, 10,000 at 100 ops, which is about what
        HiGHS closes in a minute; with more, its process only takes a
        core from the others. It waits so long for a schedule to begin from, which greedy has by then.
    turns_ops
        Ops. Up to so many, relaxations for every order and for the graph's order are solved in turn,
        and else the graph's order last, as a round takes a large part of the limit there.
    max_columns
        Columns. Relaxations with more are not attempted: formulating them takes seconds of Python,
        which cannot be interrupted, and a gigabyte in HiGHS.
    gap_share, rough_gap_ratio, larger_gap_ratio, finest_gap_ratio
        Ratios. A relaxation is solved to this share of the gap that is left to prove: what is lost
        by that is small compared with what the next time points add. The first one, whose time points are
        a guess, is solved to the rough ratio at most, later ones to the larger one. The finest is for
        the last that could be solved, when more time points take too long.
    again_share
        For solving that last one again: nothing else is left that could raise the bound.
    least_solve_s, solve_share, small_solve_share
        Seconds, shares. One relaxation gets the share, so that at least three can follow each other, but
        so many seconds, below which HiGHS hardly leaves its presolve. On small graphs and for the
        makespan, where one that is solved to its end proves more than another with more time points,
        it gets the second share.
    branching_share
        For strong branching on LPs. It replaces one solve of a wrong choice, which takes the
        `solve_share`, so a third of that pays.
    first_time_points, most_time_points
        Time points of a relaxation in the order of a schedule, at its beginning and where the series
        ends. Few at first, because each solution shows where the next belong; with more than the last
        such a program is as hard as the stage model.
    stream_share, stream_gap_ratio, least_stream_rise_ratio
        Share, ratios. One round of programs without time points, for the makespan, gets the share: most take
        a second, and what is left is for relaxations that look at memory. They are solved to the gap, because
        the next round raises the bound by more. Where a round raises it by less than the last ratio, whether
        sets are used is decided in whole numbers next.
    refine_share, least_refine_s
        Share, seconds. One relaxation in the order of a schedule gets half of what one for a bound
        gets: its solution is of use before it is optimal.
    most_idle, rounds_between
        Rounds. So many in a row without anything to try end the series; each waits for a better
        schedule of another part. So many rounds are in the order of the best schedule before one that
        a relaxation proposes has its turn: both have led to best schedules, so they alternate.
    quick_s
        Seconds for greedy after an interrupt that came before any schedule: an interrupted command ends
        within 3 s.
    relaxation
        Of the relaxations themselves.
    """

    tiny_ops: int = 6
    tiny_limit_s: float = 3.0
    small_ops: int = 60
    patience_s: float = 2.0
    slow_rest_s: float = 0.15
    tick_s: float = 0.02
    leave_s: float = 0.5
    cost_share: float = 0.1
    open_ops: int = 24
    walk_first_s: float = 8.0
    walk_share: float = 0.4
    general_share: float = 0.5
    far_ratio: float = 0.1
    far_share: float = 0.95
    exact_ops: int = 100
    parallel_ops: int = 60
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
    stream_share: float = 0.4
    stream_gap_ratio: float = 1e-3
    least_stream_rise_ratio: float = 1e-3
    refine_share: float = 0.15
    least_refine_s: float = 2.0
    most_idle: int = 10
    rounds_between: int = 1
    quick_s: float = 1.0
    relaxation: RelaxationOptions = field(default_factory=RelaxationOptions)


DEFAULTS = PortfolioOptions()
"""What a solve uses."""
