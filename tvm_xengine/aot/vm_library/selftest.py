"""The self-test of a library for TVM's virtual machine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tvm_xengine.aot.c_names import c_identifier
from tvm_xengine.aot.check.batches import draw_functions, fill_loop, seed_literal
from tvm_xengine.aot.check.compare_c import DIFFER, MAX_OUTPUTS, rows_of, single
from tvm_xengine.aot.check.reference import Expected, Trial
from tvm_xengine.aot.check.selftest_calls import array_of
from tvm_xengine.aot.check.updates import update_check
from tvm_xengine.aot.emit_c.types_in_c import float_literal, stored_type
from tvm_xengine.aot.vm_library.layout import Library


def selftest_source(library: Library, trial: Trial, expected: Expected) -> str:
    """The text of ``<name>_selftest.c``; its exit code is 0 or the number of the failed check."""
    name, macro = library.name, library.name.upper()
    arrays = "\n".join(
        f"  {stored_type(e.dtype)} *const {array_of(e)} = (void *)(arena + {macro}_IN_{e.c_name});"
        for e in trial.inputs
    )
    settings = "\n".join(
        f"    *(float *)(void *)(arena + {macro}_IN_{c_identifier(key)}) ="
        f" {float_literal(np.float32(value).item(), 'float32')};"
        for key, value in trial.settings.items()
    )
    copies = "\n".join(
        f"  memcpy(arena + {macro}_EVAL_IN_{c_identifier(key)}, last_{c_identifier(key)},"
        f" sizeof last_{c_identifier(key)});"
        for key in library.eval_inputs
    )
    lasts = "\n".join(
        f"static uint8_t last_{c_identifier(key)}[{view.size_bytes}];"
        for key, view in library.eval_inputs.items()
    )
    keeps = "\n".join(
        f"    memcpy(last_{c_identifier(key)}, in_{c_identifier(key)}, sizeof last_{c_identifier(key)});"
        for key in library.eval_inputs
    )
    outputs = expected.outputs["output"][:MAX_OUTPUTS]
    return _SELFTEST.format(
        name=name,
        MACRO=macro,
        differ=DIFFER,
        updates=update_check(
            expected.updates,
            {key: replace(view, device="arena") for key, view in library.state.items()},
        ),
        steps=trial.steps,
        losses=rows_of(expected.losses),
        outputs=rows_of(outputs),
        output_count=len(outputs),
        loss=c_identifier("loss"),
        output=c_identifier("output"),
        output_kind=stored_type(library.output.dtype),
        draw=draw_functions(name),
        seed=seed_literal(),
        arrays=arrays,
        settings=settings,
        fills="\n".join(fill_loop(name, entry, array_of(entry)) for entry in trial.inputs),
        lasts=lasts,
        keeps=keeps,
        copies=copies,
        tolerances=rows_of(expected.tolerances),
        output_tolerance=single(expected.output_tolerance),
    )


_SELFTEST = """\
/* Self-test of {name}: selftest LIBRARY STATE trains on seeded batches. Exit code 0, or what failed:
   1 opening, 2 a step, 3 a loss, 4 a stray write, 5 evaluation, 6 an update of the
   state. Prints the losses. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "{name}.h"

enum {{ GUARD = 64, STEPS = {steps} }};

static _Alignas(64) uint8_t arena[{MACRO}_ARENA_BYTES + GUARD];
{lasts}

static const float expected_loss[STEPS] = {{
{losses}}};
static const float allowed[STEPS] = {{
{tolerances}}};
static const float expected_output[{output_count}] = {{
{outputs}}};

{draw}

{differ}

{updates}

int main(int argc, char **argv) {{
  static {name}_step step;
  uint32_t random = {seed};
  FILE *state;
{arrays}
  if (argc != 3 || !(state = fopen(argv[2], "rb"))) return 1;
  if (fread(arena, 1, {MACRO}_STATE_BYTES, state) != {MACRO}_STATE_BYTES) return 1;
  fclose(state);
  if ({name}_open(&step, argv[1], arena)) return 1;
  for (int i = 0; i < STEPS; i++) {{
    int byte = i % 2 ? 0xff : 0xa5; /* 0xff is NaN */
    float loss;
    memset(arena + {MACRO}_STATE_BYTES, byte, sizeof arena - {MACRO}_STATE_BYTES);
{fills}
{keeps}
{settings}
    if ({name}_train_step(&step)) return 2;
    memcpy(&loss, arena + {MACRO}_RESULT_{loss}, sizeof loss);
    printf("%.9g\\n", (double)loss);
    if (differ(loss, expected_loss[i], allowed[i])) return 3;
    for (size_t k = {MACRO}_ARENA_BYTES; k < sizeof arena; k++)
      if (arena[k] != byte) return 4;
    if (!i && updates_differ()) return 6;
  }}
{copies}
  if ({name}_eval(&step)) return 5;
  for (int i = 0; i < {output_count}; i++)
    if (differ((float)((const {output_kind} *)(void *)(arena + {MACRO}_EVAL_OUT_{output}))[i],
               expected_output[i], {output_tolerance}))
      return 5;
  {name}_close(&step);
  return 0;
}}
"""
