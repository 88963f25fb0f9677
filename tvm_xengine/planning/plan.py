"""A schedule with everything that is known about it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm_xengine.planning.answers import with_bound_of
from tvm_xengine.scheduling.arena.plan import PACKING_EFFORT, ArenaPlan, plan_arenas
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Free, Schedule, stream_of_step
from tvm_xengine.scheduling.simulate import Simulation, simulate
from tvm_xengine.solvers.result import Objective, SolveResult, Status


@dataclass(frozen=True)
class Plan:
    """A schedule with everything that is known about it.

    Attributes
    ----------
    problem
        With the budgets that were asked for.
    result
        The solver's answer; its bound holds for `problem`, and its `solve_s` is that of all solves which
        led to the plan.
    simulation, arenas
        Of the result's schedule; where devices and links run side by side, the simulation is in these
        arenas.
    """

    problem: Problem
    result: SolveResult
    schedule: Schedule
    simulation: Simulation
    arenas: ArenaPlan

    @property
    def is_overlapped(self) -> bool:
        """Whether devices and links run side by side, as they do where the makespan is minimised."""
        return self.result.objective is Objective.MAKESPAN

    @property
    def recomputed_ops(self) -> int:
        """How many computations repeat another one, those that the graph itself repeats included."""
        return len(self.schedule.repeats(self.problem.graph))

    def under(self, problem: Problem) -> Plan:
        """The same schedule and addresses for a problem that differs in its costs; no bound is known."""
        simulation = self.simulated(problem)
        value = self.result.objective.of(simulation)
        result = replace(self.result, status=Status.FEASIBLE, value=value, bound=0.0)
        return replace(self, problem=problem, result=result, simulation=simulation)

    def laid_out(self, arenas: ArenaPlan) -> Plan:
        """The same schedule in other arenas."""
        plan = replace(self, arenas=arenas)
        simulation = plan.simulated(self.problem)
        result = replace(self.result, value=self.result.objective.of(simulation))
        return replace(plan, result=with_bound_of(self.result, result), simulation=simulation)

    def simulated(self, problem: Problem) -> Simulation:
        """The schedule, as it is run, of a problem that differs in its costs."""
        return simulate(problem, self.schedule, arenas=self.arenas if self.is_overlapped else None)

    def step_us(self, simulation: Simulation | None = None) -> float:
        """Time of a step as it is run, by the plan's simulation or another one."""
        found = simulation or self.simulation
        if not self.is_overlapped:
            return found.cost_us
        return found.makespan_us + self.has_streams * (self.problem.platform.start_us or 0.0)

    @property
    def has_streams(self) -> bool:
        """Whether the steps of the schedule belong to several devices or links."""
        platform = self.problem.platform
        steps = [step for step in self.schedule.steps if not isinstance(step, Free)]
        return len({stream_of_step(platform, step) for step in steps}) > 1

    @classmethod
    def of_schedule(
        cls,
        problem: Problem,
        schedule: Schedule,
        solver: str,
        *,
        reserve_home: bool = False,
        effort: int = PACKING_EFFORT,
    ) -> Plan:
        """The plan of a given schedule, under the name of `solver`.

        Parameters
        ----------
        reserve_home, effort
            As in `plan_arenas`.

        Raises
        ------
        InvalidScheduleError
            Naming the first step that breaks a rule of the problem.
        """
        simulation = simulate(problem, schedule)
        result = SolveResult(
            status=Status.FEASIBLE,
            schedule=schedule,
            objective=Objective.COST,
            value=simulation.cost_us,
            bound=0.0,
            solve_s=0.0,
            solver=solver,
        )
        arenas = plan_arenas(problem, schedule, effort=effort, reserve_home=reserve_home)
        return cls(problem, result, schedule, simulation, arenas)
