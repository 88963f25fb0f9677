"""The command line: ``tvm-xengine`` and ``python -m tvm_xengine``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from rich.console import Console

from tvm_xengine.commands.options import parse
from tvm_xengine.errors import XEngineError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 when it succeeded, 2 when its input was refused, 130 on Ctrl-C."""
    request = parse(arguments)
    _let_tvm_use_all_cores()
    console = Console()
    errors = Console(stderr=True, soft_wrap=True, markup=False, highlight=False)
    try:
        if request.command == "train":
            from tvm_xengine.commands.train import run_train

            run_train(request, console)
        elif request.command == "pareto":
            from tvm_xengine.commands.pareto import run_pareto

            run_pareto(request, console)
        elif request.command == "tune":
            from tvm_xengine.commands.tune import run_tune

            run_tune(request, console)
        elif request.costs_request is not None:
            from tvm_xengine.commands.costs import run_costs

            run_costs(request.costs_request, console)
        elif request.command == "export":
            from tvm_xengine.commands.export import run_export

            run_export(request, console)
        else:
            from tvm_xengine.commands.plan import run_plan

            run_plan(request, console)
    except XEngineError as error:
        errors.print(f"tvm-xengine: error: {error}")
        return 2
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        errors.print(f"tvm-xengine: error:{where}: {error.strerror}")
        return 2
    except KeyboardInterrupt:
        errors.print("tvm-xengine: interrupted; what was measured is kept")
        return 130
    return 0


def _let_tvm_use_all_cores() -> None:
    """Set up the thread pools of TVM and of libraries, which read the environment when loaded.

    By default TVM's takes half of the cores and ties its threads to them, the main thread included,
    which solvers' processes would inherit. Threads of libraries by default spin for a while when
    their kernel has ended, on the cores that the next kernel of TVM's threads needs.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    os.environ.setdefault("TVM_NUM_THREADS", str(cores or 1))
    os.environ.setdefault("TVM_BIND_THREADS", "0")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


if __name__ == "__main__":
    sys.exit(main())
