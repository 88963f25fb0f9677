"""Options of `costs` that say what is measured, and how often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from tvm_xengine.commands.arguments.values import Count, Natural, Texts

DEFAULT_TARGETS = ("llvm -mcpu=native", "llvm -mcpu=x86-64")

Targets = Annotated[Texts, Parameter(help="TVM targets to compile for.")]
Rounds = Annotated[Count, Parameter(help="Measurement rounds at separate times.")]
Boards = Annotated[
    Texts,
    Parameter(
        help="TVM RPC servers HOST:PORT, or trackers HOST:PORT/KEY, whose boards of the key share the"
        " kernels; all are used at once."
    ),
]


@Parameter(name="*")
@dataclass(frozen=True)
class Collection:
    """Which kernels are collected, how often each is measured, and on which boards, if not here.

    Attributes
    ----------
    rounds
        By default the fewest of which one that was disturbed does not move the median.
    """

    kernels: Annotated[Count, Parameter(help="Stop at this many measured kernels.")] = 5000
    targets: Targets = DEFAULT_TARGETS
    sources: Annotated[
        Texts, Parameter(help="Kernel sources in order of preference; auto is all, as in plans.")
    ] = ("auto",)
    networks: Annotated[
        Texts, Parameter(help="Networks of the zoo or the designs, or random.")
    ] = ()
    rounds: Rounds = 3
    seed: Annotated[Natural, Parameter(help="Seed of the networks that are drawn.")] = 0
    rpc: Boards = ()
