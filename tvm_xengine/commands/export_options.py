"""What can be said to ``tvm-xengine export``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ExportRequest:
    """A parsed ``export`` command.

    Attributes
    ----------
    form
        ``c`` for a package in C, ``tvm`` for a library for TVM's virtual machine.
    arena_bytes
        Limit of the first region; with no regions, a region ``sram`` of that size.
    train_only
        Patterns of the parameters that are trained; empty trains all.
    float16
        What is stored as float16: ``none``, ``activations``, or ``all`` (parameters, too).
    check
        Build the package and run its self-test, under an emulator where needed.
    """

    target: str
    form: str
    arena_bytes: int | None
    regions: str | None
    platform: Path | None
    backend: str
    optimize: str
    optimizer: str
    train_only: tuple[str, ...]
    learning_rate: float
    float16: str
    directory: Path
    force: bool
    check: bool


def add_export_arguments(command: argparse.ArgumentParser, size: Callable[[str], int]) -> None:
    """Declare the options of ``export``; `size` reads a number of bytes."""
    command.add_argument(
        "--target", required=True, metavar="T", help="e.g. cortex-m4, aarch64, host"
    )
    command.add_argument(
        "--format",
        choices=["c", "tvm"],
        default="c",
        help="plain C, or a library for TVM's virtual machine",
    )
    command.add_argument(
        "--arena-bytes", type=size, metavar="N", help="memory of the step, e.g. 192KiB"
    )
    command.add_argument("--regions", metavar="R", help="e.g. sram=192KiB,psram=4MiB,flash=1MiB")
    command.add_argument(
        "--platform",
        type=Path,
        metavar="FILE",
        help="regions, links and energy from a TOML file, or of a board (mkr1000, m4f, rpi)",
    )
    command.add_argument("--backend", choices=["c", "llvm"], default="c", help="kernels as (c)")
    command.add_argument("--optimize", choices=["speed", "size"], default="speed")
    command.add_argument("--optimizer", choices=["sgd", "momentum", "adam"], default="sgd")
    command.add_argument(
        "--train-only",
        nargs="+",
        default=[],
        metavar="PATTERN",
        help="train only the parameters that match; the others become constants in flash",
    )
    command.add_argument(
        "--float16",
        choices=["none", "activations", "all"],
        default="none",
        help="store large forward tensors (all: trained parameters, too) as float16",
    )
    command.add_argument("-o", "--output", type=Path, required=True, metavar="DIR")
    command.add_argument("--force", action="store_true", help="replace DIR if it exists")
    command.add_argument("--check", action="store_true", help="build and run the self-test")


def export_request(options: argparse.Namespace) -> ExportRequest:
    """The request in parsed options."""
    return ExportRequest(
        target=options.target,
        form=options.format,
        arena_bytes=options.arena_bytes,
        regions=options.regions,
        platform=options.platform,
        backend=options.backend,
        optimize=options.optimize,
        optimizer=options.optimizer,
        train_only=tuple(options.train_only),
        learning_rate=options.lr,
        float16=options.float16,
        directory=options.output,
        force=options.force,
        check=options.check,
    )
