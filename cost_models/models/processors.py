"""The processors that a cost model has learned from."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache

_ANY = frozenset(("", "generic", *(f"x86-64{level}" for level in ("", "-v2", "-v3", "-v4"))))
"""CPUs of targets whose code runs on many processors."""


def processors_of(targets: Iterable[str]) -> frozenset[str]:
    """The processors that targets (as JSON) name, as LLVM calls them; not those of baseline code."""
    return frozenset(map(_cpu_of, targets)) - _ANY


def processor_of(target: str) -> str:
    """The processor that code for a target (as JSON) runs on: this machine's for baseline code."""
    cpu = _cpu_of(target)
    return _this_processor() if cpu in _ANY else cpu


def _cpu_of(target: str) -> str:
    return str(json.loads(target).get("mcpu", ""))


def is_foreign(processors: frozenset[str], target: str) -> bool:
    """Whether processors are known, and that of a target (as JSON) is another one."""
    return bool(processors) and processor_of(target) not in processors


@cache
def _this_processor() -> str:
    from tvm_xengine.kernels.targets import resolve_target  # nothing else here needs a compiler

    return str(resolve_target("llvm -mcpu=native").attrs["mcpu"])
