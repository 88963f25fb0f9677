"""The time of handing over from one stream of a step to another, measured on this machine."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial

import numpy as np
import tvm
from tvm import relax

from tvm_xengine.cost_models.measure.measurements import LinkMeasurement, MeasurementCache
from tvm_xengine.cost_models.measure.this_machine import link_fingerprint
from tvm_xengine.files.say_once import say_once
from tvm_xengine.runtime.events import KEEP, SIGNAL, WAIT, Events, event_functions
from tvm_xengine.runtime.executable import link
from tvm_xengine.runtime.marks import MARK, Marks, mark_function
from tvm_xengine.runtime.stream_threads import StreamThreads
from tvm_xengine.runtime.vm_function import emit_events

_logger = logging.getLogger(__name__)

_TURNS = 100
"""Handovers there and back, each timed on its own: 0.2 ms on two cores that are free."""
_QUANTILE = 0.25
"""Of the turns: whatever else runs on the cores only adds to some of them."""
_STARTS, _SLEEP_S = 50, 0.001
"""As between two steps, in which a batch is written."""
_MOST_US = 400.0
"""Five times what it takes to start and to end two threads (75 us, measured): more is the time of other
processes."""
_NO_BYTES_GB_S = 1.0
"""A handover moves no bytes, so the bandwidth of its row says nothing."""

Cores = tuple[Collection[int], Collection[int]]
"""Of the two threads; none are all that the process may use."""


def handover_us(cache: MeasurementCache, cores: Cores) -> float | None:
    """The time between a signal of one thread and the end of another one's wait, known or measured.

    It is None, and not kept, where other processes leave these cores too little time to measure it.
    """
    return _known_us(
        "a thread", cache, cores, lambda: [time_us / 2 for time_us in _turns_us(cores)]
    )


def start_us(cache: MeasurementCache, cores: Cores) -> float | None:
    """How long the threads of two streams take to start and to end a step, known or measured.

    It is None, and not kept, as above.
    """
    return _known_us("the start of a thread", cache, cores, lambda: _starts_us(cores))


def _known_us(
    what: str, cache: MeasurementCache, cores: Cores, measure_us: Callable[[], Sequence[float]]
) -> float | None:
    key = link_fingerprint(*(f"{what} on the cores {sorted(own) or 'of all'}" for own in cores))
    known = cache.find_link(key)
    if known is not None:
        return known.latency_us
    each_us = float(np.quantile(measure_us(), _QUANTILE))
    if each_us > _MOST_US:
        say_once(
            _logger,
            "other processes leave too little time to measure how fast streams hand over; the time of"
            " steps side by side is predicted without it",
        )
        return None
    cache.add(LinkMeasurement(key, each_us, _NO_BYTES_GB_S, ((0, each_us),)))
    return each_us


def _starts_us(cores: Cores) -> list[float]:
    """How long two threads with nothing to do took to run, each time after they had slept."""
    threads, times_us = StreamThreads([int, int], Events(0), cores), []
    for _ in range(_STARTS):
        time.sleep(_SLEEP_S)
        begun_s = time.perf_counter()
        threads.run()
        times_us.append(1e6 * (time.perf_counter() - begun_s))
    return times_us


def _turns_us(cores: Cores) -> list[float]:
    """How long two threads took to signal each other, there and back, each time."""
    wait = KEEP if all(cores) and {*cores[0]}.isdisjoint(cores[1]) else WAIT
    marks = Marks(range(_TURNS))
    there, back = [], []
    for k in range(_TURNS):
        there += [(MARK, 2 * k), (SIGNAL, 2 * k), (wait, 2 * k + 1), (MARK, 2 * k + 1)]
        back += [(wait, 2 * k), (SIGNAL, 2 * k + 1)]
    functions = {"there": emit_events(there, "there", marks), "back": emit_events(back, "back")}
    events = Events(2 * _TURNS)
    linked = link(
        {name: made.function for name, made in functions.items()},
        [],
        {**event_functions(2 * _TURNS), **mark_function(marks)},
    )
    arguments = {"there": (events.tensor, marks.tensor), "back": (events.tensor,)}
    run = [
        partial(relax.VirtualMachine(linked, tvm.cpu())[name], *arguments[name])
        for name in functions
    ]
    StreamThreads(run, events, cores).run()
    return [end_us - begin_us for begin_us, end_us in marks.intervals_us.values()]
