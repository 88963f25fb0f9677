"""The self-test of a package: seeded batches, expected losses, guarded and poisoned memory."""

from __future__ import annotations

from collections.abc import Sequence

from tvm_xengine.aot.check.batches import BatchInput, draw_functions, seed_literal
from tvm_xengine.aot.check.compare_c import DIFFER, MAX_OUTPUTS, rows_of, single
from tvm_xengine.aot.check.reference import Expected
from tvm_xengine.aot.check.selftest_calls import SelftestCalls, array_of
from tvm_xengine.aot.check.updates import update_check
from tvm_xengine.aot.emit_c.checkpoints.functions import checkpoint_bytes
from tvm_xengine.aot.emit_c.types_in_c import stored_type
from tvm_xengine.aot.package.contents import Package


def selftest_source(package: Package, inputs: Sequence[BatchInput], expected: Expected) -> str:
    """The text of ``<name>_selftest.c``; its exit code is 0 or the number of the failed check."""
    name, macro = package.name, package.macro
    regions = list(package.regions)
    memory = "\n".join(
        f"static _Alignas(64) uint8_t {region}[{macro}_{region.upper()}_BYTES + GUARD];"
        for region in regions
    )
    arrays = "\n".join(
        f"static _Alignas(64) {stored_type(e.dtype)} {array_of(e)}[{e.count}];" for e in inputs
    )
    init_args = ", ".join(f"{region}, {macro}_{region.upper()}_BYTES" for region in regions)
    poison = "\n".join(
        f"  memset({region} + {macro}_{region.upper()}_KEPT_BYTES, byte,"
        f" sizeof {region} - {macro}_{region.upper()}_KEPT_BYTES);"
        for region in regions
    )
    guards = "\n".join(
        f"  for (size_t i = {macro}_{region.upper()}_BYTES; i < sizeof {region}; i++)"
        f" if ({region}[i] != byte) return 0;"
        for region in regions
    )
    calls = SelftestCalls(package, inputs)
    return _TEMPLATE.format(
        name=name,
        MACRO=macro,
        differ=DIFFER,
        updates=_updates(package, expected),
        memory=memory,
        arrays=arrays,
        losses=_losses(expected),
        outputs="\n".join(_output(calls, name, expected) for name in calls.outputs),
        draw=draw_functions(name),
        functions=calls.functions(),
        no_state=calls.refused_without_state(),
        run=calls.run(len(expected.losses)),
        evaluations=calls.evaluations(_compared(expected), single(expected.output_tolerance)),
        init_args=init_args,
        init_small=_with_size(init_args, regions[0], macro),
        init_odd=init_args.replace(f"{regions[0]},", f"{regions[0]} + 1,", 1),
        poison=poison,
        guards=guards,
        seed=seed_literal(),
        checkpoint_bytes=checkpoint_bytes(package),
        passed=_passed(expected),
    )


def _compared(expected: Expected) -> dict[str, int]:
    """How many elements of each output are compared."""
    return {name: len(values[:MAX_OUTPUTS]) for name, values in expected.outputs.items()}


def _output(calls: SelftestCalls, name: str, expected: Expected) -> str:
    """The array of an output, and what its leading elements should be."""
    kind, values = stored_type(calls.outputs[name].dtype), expected.outputs[name][:MAX_OUTPUTS]
    return f"""\
static {kind} eval_{name}[{calls.elements(name)}];
static const float expected_{name}[{len(values)}] = {{
{rows_of(values)}}};"""


def _passed(expected: Expected) -> str:
    """What was compared with what the package was made from."""
    steps = len(expected.losses)
    losses = f"the losses of {steps} steps" if steps != 1 else "the loss of a step"
    return (
        f"{losses}, the first update and the outputs are as expected"
        if steps
        else "the outputs are as expected"
    )


def _losses(expected: Expected) -> str:
    if not expected.losses:
        return ""
    return f"""\
static const float expected_loss[{len(expected.losses)}] = {{
{rows_of(expected.losses)}}};
static const float allowed[{len(expected.losses)}] = {{
{rows_of(expected.tolerances)}}};"""


def _updates(package: Package, expected: Expected) -> str:
    if not expected.losses:
        return ""
    places = {tensor.name: tensor.place for tensor in package.state}
    return f"{update_check(expected.updates, places)}\n\n"


def _with_size(arguments: str, region: str, macro: str) -> str:
    size = f"{macro}_{region.upper()}_BYTES"
    return arguments.replace(f"{region}, {size}", f"{region}, {size} - 1u", 1)


_TEMPLATE = """\
/* Self-test of {name} on seeded batches. Exit code 0, or the first check that failed:
   1 init, 2 a step, 3 a loss, 4 a stray write, 5 evaluation, 6 checkpoint, 7 a bad argument accepted,
   8 an update of the state.
   Where there is a console, a line says so, too.
   -D{MACRO}_SELFTEST_PRINT prints the bits of the losses; {MACRO}_LOSS_TOLERANCE replaces the allowed
   difference of one, relative to one plus its size. */
#include <stdint.h>
#include <string.h>
#if defined(__unix__) || defined(__APPLE__) || defined(_WIN32)
#define HAS_CONSOLE
#endif
#if defined(HAS_CONSOLE) || defined({MACRO}_SELFTEST_PRINT)
#include <stdio.h>
#endif

#include "{name}.h"

enum {{ GUARD = 64 }};

{memory}
{arrays}
{losses}
{outputs}

{draw}

{differ}

{updates}{functions}/* Everything that no call may rely on. */
static void poison(int byte) {{
{poison}
}}

static int guards_intact(int byte) {{
{guards}
  return 1;
}}

#ifndef {MACRO}_SELFTEST_NO_CHECKPOINT
typedef struct {{
  size_t used, length;
  uint8_t bytes[{checkpoint_bytes}u];
}} file;
static file saved, again;

static int file_write(void *user, const void *data, size_t bytes) {{
  file *to = user;
  if (bytes > sizeof to->bytes - to->used) return 1;
  memcpy(to->bytes + to->used, data, bytes);
  to->used += bytes;
  to->length = to->used;
  return 0;
}}

static int file_read(void *user, size_t offset, void *data, size_t bytes) {{
  file *from = user;
  if (offset > from->length || bytes > from->length - offset) return 1;
  memcpy(data, from->bytes + offset, bytes);
  return 0;
}}

/* Whether the state is, byte for byte, what was saved. */
static int state_as_saved(const {name}_ctx *ctx) {{
  memset(&again, 0, sizeof again);
  return !{name}_checkpoint_save(ctx, file_write, &again) && again.length == saved.length &&
         !memcmp(again.bytes, saved.bytes, saved.length);
}}

static int32_t load({name}_ctx *ctx) {{
  return {name}_checkpoint_load(ctx, file_read, &saved, {MACRO}_REFUSE_ABSENT, NULL);
}}

static int checkpoint_works({name}_ctx *ctx) {{
  memset(&saved, 0, sizeof saved);
  if ({name}_checkpoint_save(ctx, file_write, &saved)) return 0;
  if (saved.length != {name}_checkpoint_bytes()) return 0;
  saved.bytes[saved.length - 1] ^= 1u;
  if (load(ctx) != {MACRO}_ECRC) return 0;
  saved.bytes[saved.length - 1] ^= 1u;
  saved.bytes[0] ^= 1u;
  if (load(ctx) != {MACRO}_EFORMAT) return 0;
  saved.bytes[0] ^= 1u;
  saved.bytes[4] ^= 1u;
  if (load(ctx) != {MACRO}_EFORMAT) return 0;
  saved.bytes[4] ^= 1u;
  saved.bytes[8] ^= 1u;
  if (load(ctx) != {MACRO}_ECRC) return 0;
  saved.bytes[8] ^= 1u;
  saved.length--;
  if (load(ctx) != {MACRO}_EIO) return 0;
  saved.length++;
  if (!state_as_saved(ctx)) return 0;
  if ({name}_state_reset(ctx)) return 0;
  if (load(ctx)) return 0;
  return state_as_saved(ctx);
}}
#endif

/* 0, or the number of the check that fails. */
static int failed_check(void) {{
  {name}_ctx ctx;
  uint32_t random = {seed};
  memset(&ctx, 0, sizeof ctx);
  poison(0xa5);
  if ({name}_init(&ctx, {init_args}, {MACRO}_PLAN_HASH ^ 1u) != {MACRO}_EPLAN) return 7;
  if ({name}_init(&ctx, {init_small}, {MACRO}_PLAN_HASH) != {MACRO}_ESIZE) return 7;
  if ({name}_init(&ctx, {init_odd}, {MACRO}_PLAN_HASH) != {MACRO}_EALIGN) return 7;
  if ({name}_init(NULL, {init_args}, {MACRO}_PLAN_HASH) != {MACRO}_EINVAL) return 7;
  if ({name}_init(&ctx, {init_args}, {MACRO}_PLAN_HASH)) return 1;
{no_state}
  if ({name}_state_reset(&ctx)) return 1;
{run}
  poison(0xff);
{evaluations}
  if (!guards_intact(0xff)) return 4;
#ifndef {MACRO}_SELFTEST_NO_CHECKPOINT
  if (!checkpoint_works(&ctx)) return 6;
#endif
  return 0;
}}

int main(void) {{
  int failed = failed_check();
#if defined(HAS_CONSOLE) && !defined({MACRO}_SELFTEST_PRINT)
  static const char *const check[] = {{"", "init", "a step", "a loss", "a stray write", "evaluation",
                                      "checkpoint", "a bad argument accepted", "an update of the state"}};
  if (failed) printf("{name}: self-test failed: %s (check %d)\\n", check[failed], failed);
  else puts("{name}: self-test passed: {passed}");
#endif
  return failed;
}}
"""
