"""Random calls notice every seeded fault in the guards of a package."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.aot.calls.test_c_calls import CALLS, report, run_calls
from tvm_xengine.aot.export import ExportReport

__all__ = ["report"]  # the fixture


_SEEDS = 8
"""Draws of calls: a single one meets the rarest fault, one label of one value, in a few calls only."""


@dataclass(frozen=True)
class Mutant:
    """A fault in the C file of a package: `sound` becomes `faulty`."""

    sound: str
    faulty: str

    def __str__(self) -> str:
        return f"{self.sound} -> {self.faulty or 'nothing'}"


def without(line: str) -> Mutant:
    return Mutant(line, "")


LABEL_BOUNDS = (
    Mutant("labels[i] > 3", "labels[i] > 4"),
    Mutant("labels[i] > 3", "labels[i] > 2"),
    Mutant("labels[i] < 0", "labels[i] < -1"),
    Mutant("labels[i] != -100", "labels[i] != -101"),
    Mutant("labels[i] > 3", "(int32_t)labels[i] > 3"),
)
MUTANTS = (
    Mutant("i < 2u; ++i) if ((labels", "i < 1u; ++i) if ((labels"),
    Mutant("i < 32u; ++i) if (!(fabsf(x", "i < 31u; ++i) if (!(fabsf(x"),
    Mutant("!(fabsf(x[i]) <= FLT_MAX)", "x[i] != x[i]"),
    Mutant("lr >= 0.0f && lr <= FLT_MAX", "lr <= FLT_MAX"),
    Mutant("lr >= 0.0f && lr <= FLT_MAX", "lr >= 0.0f"),
    without("  if (!ctx->ready) return TINY_MLP_EINVAL; /* a state comes with its settings */\n"),
    Mutant("check_input(ctx, slots, count * sizeof *slots", "check_input(ctx, slots, 1"),
    Mutant("sram_bytes < TINY_MLP_SRAM_BYTES", "sram_bytes + 1 < TINY_MLP_SRAM_BYTES"),
    Mutant("(uintptr_t)sram % TINY_MLP_ALIGN", "(uintptr_t)sram % (TINY_MLP_ALIGN / 2)"),
    Mutant("ctx->region[0], TINY_MLP_SRAM_BYTES)", "ctx->region[0], TINY_MLP_SRAM_BYTES - 1)"),
    Mutant("overlap(data, bytes, ctx, sizeof *ctx)", "overlap(data, bytes, ctx, sizeof *ctx - 1)"),
    Mutant(" || (uintptr_t)b - (uintptr_t)a < a_bytes", ""),
    Mutant("(uintptr_t)a - (uintptr_t)b < b_bytes || ", ""),
    Mutant("check_result(ctx, correct, 4u)", "check_result(ctx, correct, 1u)"),
    Mutant("check_result(ctx, output, 32u)", "check_result(ctx, output, 1u)"),
    Mutant("check_input(ctx, labels, 16u", "check_input(ctx, labels, 8u"),
    without("  if (plan_hash != TINY_MLP_PLAN_HASH) return TINY_MLP_EPLAN;\n"),
    without("  if (!sram) return TINY_MLP_EINVAL;\n"),
    without("  if (!data) return TINY_MLP_EINVAL;\n"),
    without("  if ((uintptr_t)data % align) return TINY_MLP_EALIGN;\n"),
    without("  if (overlap(sram, sram_bytes, ctx, sizeof *ctx)) return TINY_MLP_EINVAL;\n"),
    without("  ctx->ready = 0;\n  ctx->region[0] = NULL;\n"),
    without("  if (!ctx->ready) return TINY_MLP_EINVAL;\n"),
)


def is_noticed(mutant: Mutant, sound: ExportReport, folder: Path) -> bool:
    directory = folder / "package"
    shutil.copytree(sound.directory, directory)
    file = directory / f"{sound.package.name}.c"
    code = file.read_text(encoding="utf-8")
    assert mutant.sound in code
    file.write_text(code.replace(mutant.sound, mutant.faulty), encoding="utf-8")
    faulty = replace(sound, directory=directory)
    return any(
        run_calls(faulty, folder, "gcc", seed, CALLS, "-Wno-error") for seed in range(_SEEDS)
    )


@pytest.mark.parametrize("mutant", LABEL_BOUNDS[:1], ids=str)
def test_a_label_bound_that_is_off_by_one_is_noticed(
    mutant: Mutant, report: ExportReport, tmp_path: Path
) -> None:
    assert is_noticed(mutant, report, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", (*LABEL_BOUNDS[1:], *MUTANTS), ids=str)
def test_every_fault_in_a_guard_is_noticed(
    mutant: Mutant, report: ExportReport, tmp_path: Path
) -> None:
    assert is_noticed(mutant, report, tmp_path)
