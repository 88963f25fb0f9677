"""The time of handing over from one stream of a step to another, measured on this machine."""

from __future__ import annotations

import logging
from collections.abc import Collection
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
_MOST_US = 100.0
"""Four times what it takes to wake up a thread (26 us, measured): more is the time of other processes."""
_NO_BYTES_GB_S = 1.0
"""A handover moves no bytes, so the bandwidth of its row says nothing."""

Cores = tuple[Collection[int], Collection[int]]
"""Of the two threads; none are all that the process may use."""


def handover_us(cache: MeasurementCache, cores: Cores) -> float | None:
    """The time between a signal of one thread and the end of another one's wait, known or measured.

    It is None, and not kept, where other processes leave these cores too little time to measure it.
    """
    key = link_fingerprint(*(f"a thread on the cores {sorted(own) or 'of all'}" for own in cores))
    known = cache.find_link(key)
    if known is not None:
        return known.latency_us
    each_us = float(np.quantile(_turns_us(cores), _QUANTILE)) / 2
    if each_us > _MOST_US:
        say_once(
            _logger,
            "other processes leave too little time to measure how fast streams hand over; the time of"
            " steps side by side is predicted without it",
        )
        return None
    cache.add(LinkMeasurement(key, each_us, _NO_BYTES_GB_S, ((0, each_us),)))
    return each_us


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
