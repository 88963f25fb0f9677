"""Runs a package in C on batches, on any target, and reads its losses and its state back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.aot.check.emulation import Build, build_program, run_program
from tvm_xengine.aot.emit_c.prototypes import Argument, arguments
from tvm_xengine.aot.entries import Entry
from tvm_xengine.aot.export import ExportReport
from tvm_xengine.aot.package.checkpoint_file import read_checkpoint
from tvm_xengine.aot.targets import embedded_target

Array = NDArray[np.generic]

_MAIN = """\
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "{name}.h"

#ifdef XE_COUNT_INSTRUCTIONS
uint64_t xe_instructions(void);
#else
static uint64_t xe_instructions(void) {{ return 0; }}
#endif

static _Alignas(64) uint8_t sram[{macro}_SRAM_BYTES];
{arrays}

static int put(void *user, const void *data, size_t bytes) {{
  return fwrite(data, 1, bytes, (FILE *)user) != bytes;
}}

int main(void) {{
  {name}_ctx ctx;
  FILE *file = fopen(BATCHES, "rb");
  if (!file) return 10;
  memset(&ctx, 0, sizeof ctx);
  if ({name}_init(&ctx, sram, sizeof sram, {macro}_PLAN_HASH) || {name}_state_reset(&ctx)) return 11;
  for (int step = 0; step < STEPS; step++) {{
    float loss = 0.0f;
    uint64_t start;
    uint32_t bits;
{reads}
    start = xe_instructions();
    if ({name}_train_step(&ctx, {given})) return 13;
    start = xe_instructions() - start;
    memcpy(&bits, &loss, sizeof bits);
    printf("%08lx %08lx\\n", (unsigned long)bits, (unsigned long)start);
  }}
  fclose(file);
  file = fopen(STATE, "wb");
  if (!file || {name}_checkpoint_save(&ctx, put, file)) return 14;
  fclose(file);
  return 0;
}}
"""


@dataclass(frozen=True)
class RunInC:
    """What a program printed and wrote.

    Attributes
    ----------
    losses
        Of all steps.
    state
        After them, by its names in checkpoints.
    instructions
        Of the last step, where they were counted; else 0.
    """

    losses: NDArray[np.float64]
    state: Mapping[str, Array]
    instructions: int


def run_in_c(
    report: ExportReport,
    target: str,
    batches: Sequence[Sequence[Array]],
    folder: Path,
    *,
    counts: bool = False,
) -> RunInC:
    """Run the training steps of a package on batches.

    Parameters
    ----------
    target
        The sources of the package are compiled for it.
    batches
        Inputs of each step in the order of the C function.
    counts
        Whether to count instructions, on a Cortex-M.
    """
    package = replace(report.package, target=embedded_target(target))
    given = arguments(package, Entry.TRAIN_STEP)
    inputs = [one for one in given if not one.is_result]
    main, data, state = (folder / name for name in ("main.c", "batches.bin", "state.bin"))
    main.write_text(
        _MAIN.format(
            name=package.name,
            macro=package.macro,
            arrays="\n".join(f"static {one.c_type} in_{one.name}[{one.count}];" for one in inputs),
            reads="\n".join(_read(one) for one in inputs),
            given=", ".join(_given(one) for one in given),
        )
    )
    data.write_bytes(b"".join(array.tobytes() for batch in batches for array in batch))
    flags = [f'-DBATCHES="{data}"', f'-DSTATE="{state}"', f"-DSTEPS={len(batches)}"]
    flags += ["-DXE_SEMIHOSTING_FILES", *(["-DXE_COUNT_INSTRUCTIONS"] * counts)]
    build_program(report.directory, package, Build(main, flags), folder / "program")
    options = ("-icount", "shift=0") if counts else ()
    done = run_program(folder / "program", package.target, *options)
    if done.returncode:
        raise RuntimeError(f"the program for {target} ended with {done.returncode}: {done.stderr}")
    rows = np.array([[int(word, 16) for word in line.split()] for line in done.stdout.splitlines()])
    losses = rows[:, 0].astype(np.uint32).view(np.float32).astype(np.float64)
    return RunInC(losses, read_checkpoint(state).tensors, int(rows[-1, 1]))


def _read(one: Argument) -> str:
    return f"    if (fread(in_{one.name}, sizeof in_{one.name}, 1, file) != 1) return 12;"


def _given(one: Argument) -> str:
    if one.is_result:
        return "&loss" if one.model_name == "loss" else "NULL"
    return f"in_{one.name}"
