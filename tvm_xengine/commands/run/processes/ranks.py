"""Commands in one of several processes: the first speaks and writes, the others are silent."""

from __future__ import annotations

import os
from dataclasses import replace

from tvm_xengine.commands.app import TrainOptions
from tvm_xengine.commands.arguments.options import OutputOptions, SaveOptions
from tvm_xengine.commands.run.steps import platform_of


def for_this_rank(options: TrainOptions) -> TrainOptions:
    """The options of the first process, or those of another one, which reports and saves no plan or trace."""
    is_several = platform_of(options.plan.machine.platform).ranks > 1
    if not is_several or int(os.environ.get("RANK", "0")) == 0:
        return options
    plan = replace(options.plan, output=OutputOptions(quiet=True), save=SaveOptions())
    return replace(options, plan=plan, state=replace(options.state, trace=None))
