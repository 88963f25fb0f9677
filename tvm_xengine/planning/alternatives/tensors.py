"""What else could be done with a tensor: keep it, recompute it, copy it, page it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from tvm_xengine.planning.alternatives.changed_schedule import Alternative, PlannedSteps, Way
from tvm_xengine.scheduling.residency import Instance
from tvm_xengine.scheduling.schedule import Compute, Step, Transfer, describe

_MOST_ARRIVALS = 4
"""Returns of a tensor that are weighed one by one; all of them together are weighed as well."""

_Change = tuple[Way, str, list[tuple[int, tuple[Step, ...]]]]
"""The kind of change, what is done instead, and which places of the steps it replaces by what."""


def tensor_alternatives(planned: PlannedSteps, tensor: str) -> tuple[Alternative, ...]:
    """Every other way to treat a tensor that is valid, the best first."""
    changes = _TensorChanges(planned, tensor)
    found = [planned.changed(way, what, pieces) for way, what, pieces in changes.every()]
    distinct = {one.schedule: one for one in reversed(found) if one is not None}
    distinct.pop(planned.plan.schedule, None)
    return tuple(sorted(distinct.values(), key=lambda one: one.rank))


@dataclass(frozen=True)
class _TensorChanges:
    planned: PlannedSteps
    tensor: str

    def every(self) -> Iterator[_Change]:
        """All changes, valid or not."""
        arrivals = self._arrivals
        if len(arrivals) > 1:
            returns = [(self._place(one.start), ()) for one in arrivals]
            what = "keep it throughout, instead of bringing it back each time"
            yield Way.KEEP, what, list(returns)
        for instance in arrivals[:_MOST_ARRIVALS]:
            match self.planned.plan.schedule.steps[instance.start]:
                case Compute():
                    yield from self._instead_of_recomputing(instance)
                case Transfer() as copy:
                    yield from self._instead_of_copying(instance, copy)
        if (longest := self._longest_wait()) is not None:
            yield from self._instead_of_keeping(*longest)

    def _instead_of_recomputing(self, instance: Instance) -> Iterator[_Change]:
        place, device = self._place(instance.start), instance.device
        until = self._first_use(instance)
        what = f"keep it on {device} until {until}, instead of recomputing it"
        yield Way.KEEP, what, [(place, ())]
        for other in self._devices_with_it(instance.start):
            copy = Transfer(self.tensor, other, device)
            what = f"copy it from {other} before {until}, instead of recomputing it"
            yield Way.MOVE, what, [(place, (copy,))]
        yield from self._paged(instance, place, (), "recomputing it")

    def _instead_of_copying(self, instance: Instance, copy: Transfer) -> Iterator[_Change]:
        place, device = self._place(instance.start), instance.device
        until = self._first_use(instance)
        if self._earlier_stay(instance) is not None:
            what = f"keep it on {device} until {until}, instead of copying it back"
            yield Way.KEEP, what, [(place, ())]
        maker = self.planned.plan.problem.graph.producer.get(self.tensor)
        if maker is not None:
            again = Compute(maker, device)
            what = f"recompute it on {device} before {until}"
            what = f"{what}, instead of copying it from {copy.src}"
            yield Way.RECOMPUTE, what, [(place, (again,))]

    def _instead_of_keeping(
        self, instance: Instance, last: int, following: int
    ) -> Iterator[_Change]:
        """Changes between two uses of a stay, the last before and the first after a long wait."""
        steps, device = self.planned.plan.schedule.steps, instance.device
        place = self._place(following)
        during = (
            f"between step {last} ({describe(steps[last])}) and step {following}"
            f" ({describe(steps[following])})"
        )
        own = self.planned.steps[place]
        maker = self.planned.plan.problem.graph.producer.get(self.tensor)
        if maker is not None:
            what, again = f"drop it {during}, and recompute it", Compute(maker, device)
            yield Way.RECOMPUTE, what, [(place, (again, own))]
        for other in self._partners(device):
            there, back = self._round_trip(device, other)
            before = self._place(last)
            out = (self.planned.steps[before], there)
            yield Way.MOVE, f"move it to {other} {during}", [(before, out), (place, (back, own))]

    def _paged(
        self, instance: Instance, place: int, instead: tuple[Step, ...], of: str
    ) -> Iterator[_Change]:
        """Keep it on another device from its last use to its return."""
        earlier = self._earlier_stay(instance)
        if earlier is None:
            return
        last = max([earlier.start, *self._uses(earlier)])
        if last < 0:
            return
        before = self._place(last)
        for other in self._partners(instance.device):
            there, back = self._round_trip(instance.device, other)
            what = f"move it to {other} and back, instead of {of}"
            out = (self.planned.steps[before], there)
            yield Way.MOVE, what, [(before, out), (place, (*instead, back))]

    @cached_property
    def _stays(self) -> Sequence[Instance]:
        instances = self.planned.plan.arenas.residency.instances
        return [one for one in instances if one.tensor == self.tensor]

    @cached_property
    def _arrivals(self) -> Sequence[Instance]:
        """Stays that begin with a recomputation or a copy."""
        first = [self._stays[0]] if self._stays else []
        return [one for one in self._stays if one.start >= 0 and one not in first]

    def _longest_wait(self) -> tuple[Instance, int, int] | None:
        """The stay, and two uses that follow each other in it, furthest apart in steps."""
        waits = []
        for stay in self._stays:
            uses = sorted({*([stay.start] if stay.start >= 0 else []), *self._uses(stay)})
            pairs = pairwise(uses)
            waits += [(self._place(b) - self._place(a), stay, a, b) for a, b in pairs]
        waits = [wait for wait in waits if wait[0] > 1]
        if not waits:
            return None
        _, stay, last, following = max(waits, key=lambda wait: wait[0])
        return stay, last, following

    def _uses(self, stay: Instance) -> Sequence[int]:
        return self.planned.plan.arenas.residency.uses[stay.id]

    def _first_use(self, stay: Instance) -> str:
        uses = self._uses(stay)
        return describe(self.planned.plan.schedule.steps[uses[0]]) if uses else "the end"

    def _earlier_stay(self, instance: Instance) -> Instance | None:
        earlier = [
            one
            for one in self._stays
            if one.device == instance.device and one.start < instance.start
        ]
        return earlier[-1] if earlier else None

    def _devices_with_it(self, step: int) -> list[str]:
        here = self._stays
        found = [one.device for one in here if one.start < step <= one.end + 1]
        arriving = next(one.device for one in here if one.start == step)
        return [device for device in dict.fromkeys(found) if device != arriving]

    def _partners(self, device: str) -> list[str]:
        links = self.planned.plan.problem.platform.link_between
        return [b for a, b in links if a == device and (b, a) in links]

    def _round_trip(self, device: str, other: str) -> tuple[Transfer, Transfer]:
        return Transfer(self.tensor, device, other), Transfer(self.tensor, other, device)

    def _place(self, step: int) -> int:
        return self.planned.position[step]
