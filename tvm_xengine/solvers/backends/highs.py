"""HiGHS (highspy): linear and mixed-integer linear programs, free."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.solvers.backends.answer import (
    Answer,
    BackendOptions,
    Incumbent,
    Outcome,
    Report,
    Unavailable,
)
from tvm_xengine.solvers.program import Program

if TYPE_CHECKING:
    import highspy

_LEAST_COST = 1e-30
"""In place of the largest cost where all are zero: its logarithm is finite."""
_S_FOR_START, _S_FOR_PRESOLVE = 0.3, 3e-5
_S_PER_LOOK, _S_PER_ITERATION = 2e-6, 6e-10
"""Work in units: for the worker process; and for each coefficient of a program, to formulate and presolve it,
for each look at the limits, and for each iteration of a linear program. Measured on 19 relaxations of LeNet,
DS-CNN, ResNet-8 and gpt_nano with 4,000 to 170,000 coefficients: half to twice as much."""
_S_PER_PIECE = 0.05
"""Work between two reports: as long as a slice of the search."""
_MOST_ITERATIONS = 2**31 - 1
"""The largest limit that HiGHS takes."""
_COST_RANGE = 1024.0
"""The largest cost is brought between this and twice as much."""


def solve_program(
    program: Program, options: BackendOptions, report: Report
) -> Answer | Unavailable:
    """The answer of HiGHS; quadratic objectives are refused, since HiGHS has no MIQP."""
    try:
        import highspy
    except ImportError as error:
        return Unavailable(f"highspy is not installed ({error})")
    if program.is_quadratic:
        return Unavailable("HiGHS solves no integer programs with products; linearise them first")
    highs = highspy.Highs()
    highs.silent()
    scaled, row_scale, divisor = _scaled(program)
    work = _Work(program, options, report, divisor)
    if not options.counts_work:
        highs.setOptionValue("time_limit", options.time_limit_s)
    elif not program.is_integer.any():
        highs.setOptionValue("simplex_iteration_limit", work.most_iterations)
    highs.setOptionValue("mip_rel_gap", max(options.gap_ratio, 1e-7))
    highs.setOptionValue("mip_abs_gap", 1e-9)
    highs.setOptionValue("threads", options.threads)
    highs.setOptionValue("random_seed", options.seed)
    highs.passModel(_model(scaled, highspy))
    if options.start is not None:
        solution = highspy.HighsSolution()
        solution.col_value = options.start.tolist()
        highs.setSolution(solution)

    def improved(event: highspy.HighsCallbackEvent) -> None:
        x = np.array(event.data_out.mip_solution)
        report(Incumbent(x, program.objective(x), float(event.data_out.mip_dual_bound) * divisor))

    def logged(event: highspy.HighsCallbackEvent) -> None:
        report(Incumbent(None, None, float(event.data_out.mip_dual_bound) * divisor))

    if program.is_integer.any():
        highs.cbMipImprovingSolution.subscribe(improved)
    if not options.counts_work:
        highs.cbMipLogging.subscribe(logged)  # as the machine has time for it
    elif program.is_integer.any():
        highs.cbMipInterrupt.subscribe(work.look)
    else:
        highs.cbSimplexInterrupt.subscribe(work.iterated)
    highs.run()
    answer = _answer(program, highs, highspy, row_scale, divisor)
    return replace(answer, work_s=work.counted_s(highs.getInfo().simplex_iteration_count))


class _Work:
    """Counts the work of a run, which HiGHS tells of where it looks at its limits.

    Parameters
    ----------
    divisor
        Of the costs.
    """

    def __init__(
        self, program: Program, options: BackendOptions, report: Report, divisor: float
    ) -> None:
        self._limit_s, self._size = options.time_limit_s, max(1, len(program.values))
        self._before_s = self._reported_s = work_before_s(program)
        self._is_integer = bool(program.is_integer.any())
        self._report, self._divisor = report, divisor
        self._looks = 0

    @property
    def most_iterations(self) -> int:
        """Iterations of the simplex method within the limit."""
        left_s = self._limit_s - self._before_s
        return max(1, int(min(left_s / (_S_PER_ITERATION * self._size), _MOST_ITERATIONS)))

    def look(self, event: highspy.HighsCallbackEvent) -> None:
        """Count one look, and end the run once the limit is reached."""
        self._looks += 1
        if self.counted_s(0) > self._limit_s:
            event.data_in.user_interrupt = True
        self._report_piece(0, float(event.data_out.mip_dual_bound) * self._divisor)

    def iterated(self, event: highspy.HighsCallbackEvent) -> None:
        """Report the work on a linear program, whose limit is one of iterations."""
        self._report_piece(event.data_out.simplex_iteration_count, -np.inf)

    def _report_piece(self, iterations: int, bound: float) -> None:
        """Report the work since the last report, if it is enough."""
        counted_s = self.counted_s(iterations)
        if counted_s >= self._reported_s + _S_PER_PIECE:
            self._reported_s = counted_s
            self._report(Incumbent(None, None, bound, counted_s))

    def counted_s(self, iterations: int) -> float:
        """The work of so many iterations of a linear program, or of the looks so far."""
        steps_s = _S_PER_LOOK * self._looks if self._is_integer else _S_PER_ITERATION * iterations
        return self._before_s + steps_s * self._size


def work_before_s(program: Program) -> float:
    """The work before the first look: to write the program, start the worker and presolve."""
    return _S_FOR_START + _S_FOR_PRESOLVE * max(1, len(program.values))


def _scaled(program: Program) -> tuple[Program, NDArray[np.float64], float]:
    """The program with coefficients of at most 2 in every row, costs likewise.

    Returned with the factors of the rows and the divisor of the costs.

    HiGHS has absolute tolerances, and solves such programs much faster. Powers of two change no digit.
    """
    row_of = np.repeat(np.arange(program.row_count), np.diff(program.starts))
    largest = np.ones(program.row_count)
    np.maximum.at(largest, row_of, np.abs(program.values))
    row_scale = 2.0 ** -np.floor(np.log2(largest))
    divisor = float(2.0 ** np.floor(np.log2(np.abs(program.cost).max(initial=_LEAST_COST))))
    scaled = replace(
        program,
        cost=program.cost / divisor * _COST_RANGE,
        row_lower=program.row_lower * row_scale,
        row_upper=program.row_upper * row_scale,
        values=program.values * row_scale[row_of],
    )
    return scaled, row_scale, divisor / _COST_RANGE


def _model(program: Program, highspy: object) -> object:
    lp = highspy.HighsLp()  # type: ignore[attr-defined]
    lp.num_col_, lp.num_row_ = program.column_count, program.row_count
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = program.cost, program.lower, program.upper
    lp.row_lower_, lp.row_upper_ = program.row_lower, program.row_upper
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise  # type: ignore[attr-defined]
    lp.a_matrix_.start_ = program.starts
    lp.a_matrix_.index_ = program.columns
    lp.a_matrix_.value_ = program.values
    if program.is_integer.any():
        kinds = highspy.HighsVarType  # type: ignore[attr-defined]
        lp.integrality_ = [
            kinds.kInteger if integer else kinds.kContinuous
            for integer in program.is_integer.tolist()
        ]
    return lp


def _answer(
    program: Program,
    highs: object,
    highspy: object,
    row_scale: NDArray[np.float64],
    divisor: float,
) -> Answer:
    status = highs.getModelStatus()  # type: ignore[attr-defined]
    kinds = highspy.HighsModelStatus  # type: ignore[attr-defined]
    name = highs.modelStatusToString(status)  # type: ignore[attr-defined]
    if status in (kinds.kInfeasible, kinds.kUnboundedOrInfeasible):
        return Answer(Outcome.INFEASIBLE, None, None, -np.inf, name)
    info = highs.getInfo()  # type: ignore[attr-defined]
    is_integer = bool(program.is_integer.any())
    has_solution = info.primal_solution_status == 2  # kSolutionStatusFeasible
    x = np.array(highs.getSolution().col_value) if has_solution else None  # type: ignore[attr-defined]
    value = program.objective(x) if x is not None else None
    if status == kinds.kOptimal and value is not None:
        if is_integer:
            return Answer(Outcome.OPTIMAL, x, value, float(info.mip_dual_bound) * divisor, name)
        scaled = np.array(highs.getSolution().row_dual)  # type: ignore[attr-defined]
        return Answer(Outcome.OPTIMAL, x, value, value, name, scaled * row_scale * divisor)
    bound = float(info.mip_dual_bound) * divisor if is_integer else -np.inf
    outcome = Outcome.FEASIBLE if x is not None and is_integer else Outcome.UNKNOWN
    return Answer(outcome, x, value, bound, name)
