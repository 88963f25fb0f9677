"""Options of ``export``: for which machine, in which form, with which memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Group, Parameter

from tvm_xengine.commands.arguments.names import (
    ENTRY_NAMES,
    LABEL_TYPES,
    LAYOUT_NAMES,
    ROUNDING_NAMES,
    STORAGE_NAMES,
)
from tvm_xengine.commands.arguments.parameter import shown_as
from tvm_xengine.commands.arguments.values import (
    ByteSize,
    Flag,
    Folder,
    Patterns,
    StepLimits,
    Text,
    choice,
    choices,
)
from tvm_xengine.commands.completion import offered

TARGET = Group("Target", sort_key=3)


@Parameter(name="*", group=TARGET)
@dataclass(frozen=True, kw_only=True)
class TargetOptions:
    """For which machine, and in which form.

    Attributes
    ----------
    target
        Target processor, such as cortex-m4, aarch64 or host.
    output
        Folder to write.
    name
        Prefix of files and C names, in place of the model's name, so that several packages can be linked
        into one program.
    format
        c (plain C) or tvm (a library for TVM's virtual machine).
    layout
        Build system that the package is laid out for: cmake (also make), zephyr, arduino, platformio
        or esp-idf.
    backend
        Form of the kernels: c (source) or llvm (an object file).
    entry
        Functions of the package: train_step, eval, infer (one sample), accumulate with apply
        (gradients over single samples).
    eval_mode
        Train the model in evaluation mode: batch norms keep their running statistics, dropout drops
        nothing.
    label_type
        Type of the labels in C: int64, or a shorter one, int8, uint8, int16, uint16 or int32.
    optimize
        What kernels are optimised for: speed or size.
    float16
        Store as float16: none, activations (large forward tensors), or all (parameters, too).
    bfloat16
        Store as bfloat16, which has the range of float32 and less precision: none, activations,
        or all.
    rounding
        How new values of parameters that are stored short are rounded: nearest, or stochastic (up or down at
        random by --seed, to the nearer value more often), which does not lose updates too small for the type.
    force
        Replace the package in the output folder.
    check
        Build the package and run its self-test, under an emulator where needed.
    """

    target: Text
    output: Annotated[Folder, Parameter(name=("--output", "-o"))]
    name: Text | None = None
    format: Annotated[str, choice(("c", "tvm"))] = "c"
    layout: Annotated[str, choice(LAYOUT_NAMES)] = "cmake"
    backend: Annotated[str, choice(("c", "llvm"))] = "c"
    entry: Annotated[tuple[str, ...], choices(ENTRY_NAMES)] = ("train_step", "eval")
    eval_mode: Flag = False
    label_type: Annotated[str, choice(LABEL_TYPES)] = "int64"
    optimize: Annotated[str, choice(("speed", "size"))] = "speed"
    float16: Annotated[str, choice(STORAGE_NAMES)] = "none"
    bfloat16: Annotated[str, choice(STORAGE_NAMES)] = "none"
    rounding: Annotated[str, choice(ROUNDING_NAMES)] = "nearest"
    force: Flag = False
    check: Flag = False


@Parameter(name="*", group=TARGET)
@dataclass(frozen=True)
class RegionOptions:
    """Which memory there is.

    Attributes
    ----------
    arena_bytes
        Memory limit of the first region, e.g. 192KiB.
    regions
        Sizes of memory regions, fastest first, e.g. sram=192KiB,psram=4MiB,flash=1MiB.
    platform
        Regions, links and energy from a TOML file, or of a board (mkr1000, m4f, rpi).
    train_only
        Train only the parameters that match a pattern; the others become constants in flash.
    """

    arena_bytes: ByteSize | None = None
    regions: Annotated[str | None, shown_as("REGIONS")] = None
    platform: Annotated[
        str | None, shown_as("FILE|BOARD", completer=offered("mkr1000", "m4f", "rpi"))
    ] = None
    train_only: Patterns = ()


@Parameter(name="*", group=TARGET)
@dataclass(frozen=True)
class TrainBudgetOptions:
    """Which layers are trained, where not all of them fit.

    Attributes
    ----------
    train_scores
        Train the layers with the greatest sum of scores that fit. Scores by layer or parameter from a
        .toml file, or the Fisher information of each layer on samples from a source as --data of train.
    train_budget
        Limits of a step of these layers besides memory: time=20ms, energy=5mJ; with trials=60 at most 60
        subsets of layers are planned.
    """

    train_scores: Annotated[str | None, shown_as("FILE|SOURCE", completer=offered("digits"))] = None
    train_budget: StepLimits = ()
