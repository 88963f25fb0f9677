"""Every threshold of the relaxations, with its unit and its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RelaxationOptions:
    """Where relaxations look at memory, and what they leave out.

    Attributes
    ----------
    small_ops
        Ops. Up to so many, relaxations leave no tensor out and are solved to their optimum: their
        programs take seconds. On larger ones the last thousandth of a value takes longer than a
        program with more time points, which raises the bound by more.
    floating_ops
        Ops. Up to so many, time points for every schedule need not be a chain of dependences. Each that
        does not belong to the chain may be in several places, which doubles a program after a few.
    pressed_ratio
        Share of a budget. An op is a candidate for a time point if at its first run so much is asked
        for. Below 1, since a schedule that trades memory fills budgets without exceeding them; a
        smaller share adds candidates where memory is no matter.
    negligible_share
        Share of a budget that all neglected tensors take together. Their bytes can hide an excess of
        no more than that, and they are most of the columns: parameters of norms, biases, losses.
    most_candidates
        Time points. So many are compared at once by strong branching: their LPs are one program,
        whose time grows with their number, while neighbours on the trunk differ little.
    most_lp_columns
        Columns of all these LPs together; larger graphs have fewer candidates. HiGHS's dual simplex
        takes seconds for so many.
    most_chosen
        Time points. So many are added before the relaxation is solved again: its solution shows
        better candidates than those known.
    least_rise_ratio
        Of the value of the LP. A smaller rise is noise of the simplex tolerances and of neglected
        tensors.
    near_ratio
        Share of the largest rise. Candidates this close to it are taken as equal, and the one in the
        middle is chosen, from which neighbours on both sides profit.
    least_broken_ratio, most_cuts
        Of the value; sets of jobs of a stream. Rows that a solution breaks by less raise the bound by less
        than solving again is worth. The sets that are broken most are nearly the same, and each takes a row
        for every member.
    """

    small_ops: int = 60
    floating_ops: int = 100
    pressed_ratio: float = 0.9
    negligible_share: float = 1e-3
    most_candidates: int = 7
    most_lp_columns: int = 60_000
    most_chosen: int = 3
    least_rise_ratio: float = 5e-4
    near_ratio: float = 0.8
    least_broken_ratio: float = 1e-3
    most_cuts: int = 2


DEFAULTS = RelaxationOptions()
"""What a solve uses."""
