"""What is loaded when, and how the threads that compute are set up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest

LOADS_SLOWLY = {"xgboost", "sklearn", "pandas", "scipy.optimize"}


def run(program: str, **environment: str) -> str:
    """What a new process prints, in which nobody has said how many threads there are."""
    given = {k: v for k, v in os.environ.items() if not k.startswith(("TVM_", "OMP_", "GOMP_"))}
    finished = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=given | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def loaded_by(statement: str) -> set[str]:
    return set(run(f"import sys\n{statement}\nprint(*sys.modules)").split())


def test_compiler_loads_what_predicts_when_it_predicts() -> None:
    loaded = loaded_by("import tvm_xengine.compiler")
    assert "tvm" in loaded
    assert not LOADS_SLOWLY & loaded


def test_help_loads_no_compiler() -> None:
    loaded = loaded_by("from tvm_xengine.commands.options import parse")
    assert not {"tvm", "torch", "scipy.sparse"} & loaded


STEPS_AND_PAUSES = """
    import json, os, time
    from tvm_xengine.compiler import build_step, lower_step, make_problem, plan_keep_everything
    from tvm_xengine.frontends.load import load_model
    from tvm_xengine.graph import Role
    from tvm_xengine.platform import Device, Platform
    from tvm_xengine.problem import OpCost
    from tvm_xengine.training.build import build_training_step
    import numpy as np, tvm

    device = Device("cpu", "llvm -mcpu=native -num-cores=native", kernels=("SOURCE",))
    training = build_training_step(load_model("lenet", batch_size=64))
    lowered = lower_step(training.mod, Platform((device,)))
    problem = make_problem(lowered, lowered.platform, lambda ks: {k.symbol: OpCost(1.0) for k in ks})
    executable = build_step(lowered, plan_keep_everything(problem, "cpu"))
    executable.write(training.initial_state)
    batch = {
        "x": np.zeros((64, 1, 28, 28), np.float32), "labels": np.zeros(64, np.int64), "lr": 0.1,
    }

    def cpu_s(pause_s):
        before_s = time.process_time()
        for _ in range(20):
            executable.step(batch)
            time.sleep(pause_s)
        return time.process_time() - before_s

    cpu_s(0.0)
    print(json.dumps({
        "threads": int(tvm.get_global_func("runtime.NumThreads")()),
        "cores": len(os.sched_getaffinity(0)),
        "in_pauses_s": cpu_s(0.02) - cpu_s(0.0),
    }))
"""


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs Linux's scheduler")
@pytest.mark.parametrize("source", ["tir"])
def test_threads_of_kernels_leave_the_cores_when_they_have_nothing_to_do(source: str) -> None:
    """They would spin through all of the 0.4 s of pauses, and a bound main thread sees one core."""
    cores = len(os.sched_getaffinity(0))
    if cores == 1:
        pytest.skip("one core has one thread")
    found = json.loads(run(STEPS_AND_PAUSES.replace("SOURCE", source)))
    assert found["threads"] == cores
    assert found["cores"] == cores
    assert found["in_pauses_s"] < 0.15


def test_the_environment_has_the_last_word() -> None:
    names = ("TVM_NUM_THREADS", "OMP_WAIT_POLICY", "TVM_THREAD_POOL_SPIN_COUNT")
    program = f"""
        import os
        from tvm_xengine.thread_pools import share_cores
        share_cores()
        print(*(os.environ[name] for name in {names}))
    """
    given = {"TVM_NUM_THREADS": "7", "OMP_WAIT_POLICY": "active"}
    assert run(program, **given).split() == ["7", "active", "0"]
