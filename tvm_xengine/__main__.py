"""The command line: ``tvm-xengine`` and ``python -m tvm_xengine``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console

from tvm_xengine.commands.options import parse
from tvm_xengine.errors import XEngineError
from tvm_xengine.kernels.threads import share_cores


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 when it succeeded, 2 when its input was refused, 130 on Ctrl-C."""
    request = parse(arguments)
    share_cores()
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


if __name__ == "__main__":
    sys.exit(main())
