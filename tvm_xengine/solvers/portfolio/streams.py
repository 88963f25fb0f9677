"""Bounds on the makespan by relaxations without time points, and the sets of jobs that they need."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tvm_xengine.solvers.backends.answer import BackendOptions, RunProgram
from tvm_xengine.solvers.local_search.compiled.decisions import placed_decisions
from tvm_xengine.solvers.portfolio.context import Context
from tvm_xengine.solvers.portfolio.events import RelaxationSolved
from tvm_xengine.solvers.program import Program
from tvm_xengine.solvers.relaxation.relaxations import Relaxations
from tvm_xengine.solvers.relaxation.rows.first_runs import StreamCut, Streams
from tvm_xengine.solvers.relaxation.stream_cuts import broken_cuts


def stream_bounds(
    context: Context, relaxations: Relaxations, run: RunProgram, run_apart: RunProgram
) -> Iterator[tuple[float, Relaxations]]:
    """Bounds, each with the relaxations of all cuts that led to it.

    First of linear programs, then of programs in which sets are used or not; on small graphs all is whole.
    """
    request, options = context.task.request, context.task.options
    is_small = relaxations.indexed.op_count <= options.relaxation.small_ops
    is_linear, last = True, 0.0
    while not context.task.is_over:
        model = relaxations.at(())
        assert model.streams is not None
        limit_s = options.stream_share * request.remaining_s
        if is_linear:
            program, solve = model.program.relaxed(), run_apart
        else:
            program = model.program if is_small else _with_whole_sets(model.program, model.streams)
            solve = run
        answer = solve(
            program, BackendOptions(limit_s, options.stream_gap_ratio, seed=request.seed), last
        )
        bound = answer.bound if math.isfinite(answer.bound) else last
        rise, last = bound - last, max(bound, last)
        broken: tuple[StreamCut, ...] = ()
        if answer.x is not None and answer.value is not None:
            broken = broken_cuts(
                model.streams, answer.x, max(last, answer.value), options.relaxation
            )
            decisions = placed_decisions(
                relaxations.indexed, model.streams.devices(answer.x), model.streams.order(answer.x)
            )
            context.task.post(RelaxationSolved(decisions))
        cuts = tuple(cut for cut in broken if cut not in relaxations.cuts)
        relaxations = replace(relaxations, cuts=(*relaxations.cuts, *cuts))
        yield last, relaxations
        is_stuck = not cuts or rise <= options.least_stream_rise_ratio * last
        if is_stuck and not is_linear:
            return
        is_linear &= not is_stuck


def _with_whole_sets(program: Program, streams: Streams) -> Program:
    is_integer = np.zeros_like(program.is_integer)
    is_integer[streams.used] = True
    return replace(program, is_integer=is_integer)
