"""Compiled: the memory and the makespan of decoded steps."""

from __future__ import annotations

from tvm_xengine.solvers.compiled import inlined
from tvm_xengine.solvers.indexed import NONE
from tvm_xengine.solvers.local_search.compiled.scratch import COMPUTE, HOT, STAYS, STEPS, Scratch
from tvm_xengine.solvers.local_search.compiled.view import SearchView


@inlined
def measure_memory(g: SearchView, w: Scratch) -> float:
    """Live bytes during every step; returns the excess and leaves the hot steps in `w`.

    Runs take the cheapest kernels that fit, whose value is added.
    """
    steps = w.counted[STEPS]
    w.live[:, : steps + 2] = 0
    for k in range(w.counted[STAYS]):
        d = w.stay[k].device
        if not g.device[d].is_uncapacitated or g.by_makespan:
            size = g.tensor[w.stay[k].tensor].size
            w.live[d, w.stay[k].start] += size
            w.live[d, min(w.stay[k].end, steps) + 1] -= size
    excess = 0.0
    hot = 0
    for d in range(len(g.device)):
        if g.device[d].is_uncapacitated and not g.by_makespan:
            continue
        budget = g.device[d].budget
        running, worst, beyond = 0, 0, 0.0
        for s in range(steps):
            running += w.live[d, s]
            live, is_slowed = running, False
            if w.step[s].kind == COMPUTE and w.step[s].src == d:
                live += _take_kernel(g, w, s, budget - running)
                is_slowed = w.step[s].kernel < g.kernel.shape[2] - 1
            w.live[d, s] = live
            if live > budget:
                if beyond == 0.0 and excess == 0.0:
                    hot = 0  # only what exceeds a budget is hot from here on
                beyond += live - budget
                worst = max(worst, live - budget)
                w.hot[hot].step, w.hot[hot].device = s, d
                hot += 1
            elif beyond == 0.0 and excess == 0.0 and (is_slowed or live > 0.95 * budget):
                w.hot[hot].step, w.hot[hot].device = s, d
                hot += 1
        excess += (worst + beyond / max(1, len(g.tensor))) / max(1, budget)
    w.counted[HOT] = hot
    return excess


@inlined
def _take_kernel(g: SearchView, w: Scratch, s: int, room: int) -> int:
    """Let a run take the cheapest kernel that fits into `room`, else the leanest; returns its workspace."""
    i, d, kernel = w.step[s].item, w.step[s].src, g.kernel.shape[2] - 1
    while kernel > 0 and g.kernel[i, d, kernel].workspace > room:
        kernel -= 1
    w.step[s].kernel = kernel
    w.value[0] += g.kernel[i, d, kernel].value - g.run[i, d].value
    return int(g.kernel[i, d, kernel].workspace)


@inlined
def makespan(g: SearchView, w: Scratch) -> float:
    """End of the last step on the overlapped timeline, by the validator's rule."""
    begun = _begin_timeline(g, w)
    last = 0.0
    for s in range(w.counted[STEPS]):
        if w.step[s].kind == COMPUTE:
            end, begun = _run_on_timeline(g, w, s, begun)
        else:
            end, begun = _copy_on_timeline(g, w, s, begun)
        last = max(last, end)
        k = w.step[s].first_ending
        while k >= 0:
            _note_freed(w, w.stay[k].device, w.stay[k].touched_us, g.tensor[w.stay[k].tensor].size)
            k = w.stay[k].next_ending
    return last


@inlined
def _begin_timeline(g: SearchView, w: Scratch) -> int:
    """Clear the timeline; returns how many stays have begun before the first step."""
    steps = w.counted[STEPS]
    for s in range(steps):
        w.step[s].first_ending = -1
    for k in range(w.counted[STAYS]):
        w.stay[k].written_us = 0.0
        w.stay[k].written_by = NONE
        w.stay[k].touched_us = 0.0
        if 0 <= w.stay[k].end < steps:
            w.stay[k].next_ending = w.step[w.stay[k].end].first_ending
            w.step[w.stay[k].end].first_ending = k
    w.stream_us[:] = 0.0
    w.freed_count[:] = 0
    w.stay_of[:] = -1
    begun = 0
    for t in range(len(g.tensor)):
        if g.tensor[t].home >= 0:
            w.stay_of[t, g.tensor[t].home] = begun
            begun += 1
    return begun


@inlined
def _run_on_timeline(g: SearchView, w: Scratch, s: int, begun: int) -> tuple[float, int]:
    """End of a run, and how many stays have begun with it."""
    i, d = w.step[s].item, w.step[s].src
    start = w.stream_us[d]
    for k in range(g.op[i].read_at, g.op[i + 1].read_at):
        start = max(start, _readable_us(g, w, w.stay_of[g.read[k], d], d))
    for k in range(g.op[i].made_at, g.op[i + 1].made_at):
        state = g.tensor[g.made[k]].update_of
        if state >= 0:
            start = max(start, w.stay[w.stay_of[state, d]].touched_us)
    start = max(start, _memory_ready(w, d, g.device[d].budget - w.live[d, s], start))
    end = start + g.kernel[i, d, w.step[s].kernel].value
    w.stream_us[d] = end
    w.step[s].begin_us, w.step[s].end_us = start, end
    for k in range(g.op[i].read_at, g.op[i + 1].read_at):
        stay = w.stay_of[g.read[k], d]
        w.stay[stay].touched_us = max(w.stay[stay].touched_us, end)
    for k in range(g.op[i].made_at, g.op[i + 1].made_at):
        begun = _begin_stay(g, w, g.made[k], d, begun, g.tensor[g.made[k]].update_of >= 0)
        _write_on_timeline(w, w.stay_of[g.made[k], d], d, end)
    return end, begun


@inlined
def _copy_on_timeline(g: SearchView, w: Scratch, s: int, begun: int) -> tuple[float, int]:
    """End of a copy, and how many stays have begun with it."""
    t, src, d = w.step[s].item, w.step[s].src, w.step[s].dst
    stream = g.copy_stream[src, d]
    start = max(w.stream_us[stream], _readable_us(g, w, w.stay_of[t, src], stream))
    state = g.tensor[t].update_of
    overwrites = state >= 0 and g.tensor[state].home == d
    if overwrites:
        start = max(start, w.stay[w.stay_of[state, d]].touched_us)
    else:
        start = max(start, _memory_ready(w, d, g.device[d].budget - w.live[d, s], start))
    end = start + g.transfer[src, d, t].value
    w.stream_us[stream] = end
    w.step[s].begin_us, w.step[s].end_us = start, end
    stay = w.stay_of[t, src]
    w.stay[stay].touched_us = max(w.stay[stay].touched_us, end)
    begun = _begin_stay(g, w, t, d, begun, overwrites)
    _write_on_timeline(w, w.stay_of[t, d], stream, end)
    return end, begun


@inlined
def _readable_us(g: SearchView, w: Scratch, stay: int, stream: int) -> float:
    """Time from which a stream can read a stay."""
    by = w.stay[stay].written_by
    return float(w.stay[stay].written_us + (0.0 if by in (NONE, stream) else g.handover))


@inlined
def _begin_stay(g: SearchView, w: Scratch, t: int, d: int, begun: int, overwrites: bool) -> int:
    """Give a tensor the stay of the state that it overwrites, or a new one; returns how many have begun."""
    if overwrites:
        w.stay_of[t, d] = w.stay_of[g.tensor[t].update_of, d]
        return begun
    w.stay_of[t, d] = begun
    return begun + 1


@inlined
def _write_on_timeline(w: Scratch, stay: int, stream: int, end: float) -> None:
    """Note a stay that `stream` writes until `end`."""
    w.stay[stay].written_us, w.stay[stay].written_by = end, stream
    w.stay[stay].touched_us = end


@inlined
def _note_freed(w: Scratch, d: int, finished: float, size: int) -> None:
    """Insert into the frees of device d, which are sorted by time."""
    k = w.freed_count[d]
    while k > 0 and w.freed[d, k - 1].us > finished:
        w.freed[d, k].us = w.freed[d, k - 1].us
        w.freed[d, k].size = w.freed[d, k - 1].size
        k -= 1
    w.freed[d, k].us, w.freed[d, k].size = finished, size
    w.freed_count[d] += 1


@inlined
def _memory_ready(w: Scratch, d: int, room: int, after: float) -> float:
    """Time from which the frees that have not finished fit into `room`, if later than `after`."""
    pending = 0
    k = w.freed_count[d] - 1
    while k >= 0 and w.freed[d, k].us > after:
        pending += w.freed[d, k].size
        if pending > room:
            return float(w.freed[d, k].us)
        k -= 1
    return after
