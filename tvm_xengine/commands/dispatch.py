"""Which function runs a command."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from tvm_xengine.commands.options import parse
from tvm_xengine.kernels.threads import share_cores


def run_command(arguments: Sequence[str]) -> None:
    """Run the command that `arguments` say.

    Raises
    ------
    XEngineError
        When its input is refused.
    SystemExit
        When the arguments are, or only ask for help.
    """
    request = parse(arguments)
    share_cores()
    console = Console()
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
