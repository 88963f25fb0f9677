"""Parallel loops of generated kernels run on the threads of OpenMP."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import te
from tvm.s_tir import Schedule
from tvm.target import Target

from tests.shares import first
from tvm_xengine.kernels.threads.running import may_spin, while_kernels_run
from tvm_xengine.kernels.threads.team import (
    _HOOK,
    gather,
    launch_address,
    load_library,
    openmp,
)

needs_openmp = pytest.mark.skipif(openmp() is None, reason="needs GNU's OpenMP")

_PART = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p
)


def launch(part: object, parts: int) -> int:
    function = ctypes.CFUNCTYPE(ctypes.c_int32, _PART, ctypes.c_void_p, ctypes.c_int32)
    return int(function(launch_address())(part, None, parts))


@needs_openmp
@pytest.mark.parametrize("parts", [1, 2, 7, 1000])
def test_each_part_runs_once_however_many_threads_there_are(parts: int) -> None:
    seen: list[int] = []
    counts: set[int] = set()

    @_PART
    def part(k: int, group: object, _data: object) -> int:
        seen.append(k)
        counts.add(ctypes.cast(group, ctypes.POINTER(ctypes.c_int32))[2])
        return 0

    assert launch(part, parts) == 0
    assert Counter(seen) == Counter(range(parts))
    assert counts == {parts}


@needs_openmp
def test_a_part_that_fails_fails_the_loop_and_the_others_still_run() -> None:
    seen = []

    @_PART
    def part(k: int, _group: object, _data: object) -> int:
        seen.append(k)
        return -1 if k == 2 else 0

    assert launch(part, 5) == -1
    assert sorted(seen) == list(range(5))


@pytest.fixture(scope="module")
def parallel_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    x = te.placeholder((1000,), name="x")
    doubled = te.compute((1000,), lambda i: x[i] * 2.0, name="doubled")
    schedule = Schedule(te.create_prim_func([x, doubled]).with_attr("global_symbol", "doubled"))
    schedule.parallel(schedule.get_loops(schedule.get_sblock("doubled"))[0])
    path = tmp_path_factory.mktemp("parallel") / "doubled.so"
    tvm.compile(schedule.mod, Target("llvm")).export_library(str(path))
    return path


@needs_openmp
def test_a_loaded_library_runs_on_the_team(parallel_library: Path) -> None:
    module = load_library(parallel_library)
    hook = ctypes.c_void_p.in_dll(ctypes.CDLL(str(parallel_library)), _HOOK)
    assert hook.value == launch_address()
    values = np.arange(1000, dtype="float32")
    given, found = tvm.runtime.tensor(values), tvm.runtime.tensor(np.zeros_like(values))
    assert may_spin([module])
    for spin in (True, False):
        with while_kernels_run(spin=spin, parallel=True):
            module["doubled"](given, found)
        assert np.array_equal(found.numpy(), values * 2)


@needs_openmp
def test_several_threads_have_a_team_each(parallel_library: Path) -> None:
    module = load_library(parallel_library)
    values = np.arange(1000, dtype="float32")
    wrong: list[int] = []

    def work(number: int) -> None:
        given = tvm.runtime.tensor(values + number)
        found = tvm.runtime.tensor(np.zeros_like(values))
        for _ in range(200):
            module["doubled"](given, found)
        if not np.array_equal(found.numpy(), (values + number) * 2):
            wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@needs_openmp
@pytest.mark.skipif((os.cpu_count() or 1) == 1, reason="needs two cores")
@pytest.mark.parametrize("most", first(1, [None, "1"]))
def test_the_environment_says_how_many_threads_there_are(most: str | None) -> None:
    program = """
        import ctypes, json, os, threading
        os.sched_setaffinity(0, range(os.cpu_count()))
        from tvm_xengine.kernels.threads.pool import thread_pool_size
        from tvm_xengine.kernels.threads.settings import sharing_cores
        from tvm_xengine.kernels.threads.team import launch_address
        part_type = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, *[ctypes.c_void_p] * 2)
        seen = []
        part = part_type(lambda k, *_: seen.append(k) or 0)
        with sharing_cores():  # its settings are not the user's
            address = launch_address()
        call = ctypes.CFUNCTYPE(ctypes.c_int32, part_type, ctypes.c_void_p, ctypes.c_int32)
        call(address)(part, None, 0)
        print(json.dumps([len(seen), thread_pool_size()]))
    """
    names = ("TVM_NUM_THREADS", "OMP_NUM_THREADS")
    given = {k: v for k, v in os.environ.items() if k not in names}
    if most is not None:
        given["TVM_NUM_THREADS"] = most
    run = [sys.executable, "-c", textwrap.dedent(program)]
    parts, pool = json.loads(subprocess.run(run, env=given, check=True, capture_output=True).stdout)
    assert parts == pool == int(most or os.cpu_count() or 1)


@needs_openmp
def test_a_team_is_the_same_threads_each_time() -> None:
    team = gather()
    assert all(Path(f"/proc/self/task/{thread}").exists() for thread in team)
    assert threading.get_native_id() not in team
    assert all(gather() == team for _ in range(3))
