"""The source of a package: memory, settings, checkpoints, and its entry points."""

from __future__ import annotations

import numpy as np

from tvm_xengine.aot.emit_c.checkpoints.functions import checkpoint_functions, state_table
from tvm_xengine.aot.emit_c.dma import DMA_FIELDS, dma_functions
from tvm_xengine.aot.emit_c.entry_point import entry_point
from tvm_xengine.aot.emit_c.guards import no_rate
from tvm_xengine.aot.emit_c.prototypes import init_prototype
from tvm_xengine.aot.emit_c.status import CHECK_CTX, status_text
from tvm_xengine.aot.emit_c.tiles import tiled_functions
from tvm_xengine.aot.emit_c.types_in_c import float_literal
from tvm_xengine.aot.package.contents import Package


def driver_source(package: Package) -> str:
    """The text of ``<name>.c``."""
    name = package.name
    parts = [
        f"""\
/* Functions of {name}, made by tvm-xengine. Calls in the order of the plan; see {name}_plan.json.
   No heap, no files, no globals that change. Compile with -fno-strict-aliasing: one byte of an
   arena holds values of several types, one after the other. */
#include "{name}.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "{name}_kernels.h"

/* The bytes at an offset of a region, as a pointer to a type. */
#define AT(type, region, offset) ((type *)(void *)((region) + (offset)))

/* Differences wrap around, so that no size is too large. */
static int overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes) {{
  return (uintptr_t)a - (uintptr_t)b < b_bytes || (uintptr_t)b - (uintptr_t)a < a_bytes;
}}

static int32_t check_ctx(const {name}_ctx *ctx) {{
  if (!ctx) return {package.macro}_EINVAL;
  return (uintptr_t)ctx % sizeof(void *) ? {package.macro}_EALIGN : {package.macro}_OK;
}}""",
        status_text(package),
        _init(package),
        state_table(package),
        _reset(package),
        *(_setter(package, hyper) for hyper in package.hyper),
        _input_check(package),
        *([dma_functions(package)] if package.channels else []),
        *tiled_functions(package),
        *(entry_point(package, entry) for entry in package.functions),
        *([_discard(package)] if package.accumulates else []),
        checkpoint_functions(package),
    ]
    return "\n\n".join(parts) + "\n"


def _init(package: Package) -> str:
    macro, names = package.macro, list(package.regions)
    lines = [
        f"{init_prototype(package)} {{",
        CHECK_CTX,
        "  ctx->ready = 0;",
        *(["  ctx->samples = 0;"] if package.accumulates else []),
        *(f"  ctx->dma.{field} = NULL;" for field in DMA_FIELDS if package.channels),
        *(f"  ctx->region[{position}] = NULL;" for position in range(len(names))),
    ]
    lines.append(f"  if (plan_hash != {macro}_PLAN_HASH) return {macro}_EPLAN;")
    for name in names:
        lines.append(f"  if (!{name}) return {macro}_EINVAL;")
        lines.append(f"  if ((uintptr_t){name} % {macro}_ALIGN) return {macro}_EALIGN;")
        lines.append(f"  if ({name}_bytes < {macro}_{name.upper()}_BYTES) return {macro}_ESIZE;")
    for position, name in enumerate(names):
        lines += [
            f"  if (overlap({name}, {name}_bytes, {other}, {other}_bytes)) return {macro}_EINVAL;"
            for other in names[position + 1 :]
        ]
        lines.append(
            f"  if (overlap({name}, {name}_bytes, ctx, sizeof *ctx)) return {macro}_EINVAL;"
        )
    lines += [f"  ctx->region[{position}] = {name};" for position, name in enumerate(names)]
    lines += [f"  ctx->{hyper} = 0.0f;" for hyper in package.hyper]
    lines += [f"  return {macro}_OK;", "}"]
    return "\n".join(lines)


def _reset(package: Package) -> str:
    macro = package.macro
    lines = [
        f"int32_t {package.name}_state_reset({package.name}_ctx *ctx) {{",
        CHECK_CTX,
        f"  if (!ctx->region[0]) return {macro}_EINVAL;",
        "  for (const part *p = parts; p < parts + PARTS_STATE; p++) {",
        "    uint8_t *to = ctx->region[p->region] + p->offset;",
        "    if (p->value) memcpy(to, p->value, p->bytes);",
        "    else memset(to, 0, p->bytes);",
        "  }",
    ]
    for hyper, value in package.hyper.items():
        lines.append(f"  ctx->{hyper} = {_float(float(np.float32(value)))};")
    lines += ["  ctx->samples = 0;"] if package.accumulates else []
    lines += ["  ctx->ready = 1;", f"  return {macro}_OK;", "}"]
    return "\n".join(lines)


def _setter(package: Package, hyper: str) -> str:
    macro = package.macro
    return f"""\
int32_t {package.name}_set_{hyper}({package.name}_ctx *ctx, float {hyper}) {{
{CHECK_CTX}
  if (!ctx->ready) return {macro}_EINVAL; /* a state comes with its settings */
  if ({no_rate(hyper)}) return {macro}_ERANGE;
  ctx->{hyper} = {hyper};
  return {macro}_OK;
}}"""


def _discard(package: Package) -> str:
    return f"""\
int32_t {package.name}_discard({package.name}_ctx *ctx) {{
{CHECK_CTX}
  if (!ctx->ready) return {package.macro}_EINVAL;
  ctx->samples = 0;
  return {package.macro}_OK;
}}"""


def _input_check(package: Package) -> str:
    macro = package.macro
    checks = "\n".join(
        f"  if (overlap(data, bytes, ctx->region[{position}], {macro}_{name.upper()}_BYTES))"
        f" return {macro}_EINVAL;"
        for position, name in enumerate(package.regions)
    )
    return f"""\
/* An argument must be there, be aligned, and lie outside the regions. */
static int32_t check_input(const {package.name}_ctx *ctx, const void *data, size_t bytes, size_t align) {{
  if (!data) return {macro}_EINVAL;
  if ((uintptr_t)data % align) return {macro}_EALIGN;
{checks}
  return {macro}_OK;
}}

/* A result may be missing; it must lie outside the regions and the context. */
static int32_t check_result(const {package.name}_ctx *ctx, const void *data, size_t bytes) {{
  if (!data) return {macro}_OK;
  if (overlap(data, bytes, ctx, sizeof *ctx)) return {macro}_EINVAL;
  return check_input(ctx, data, bytes, 1);
}}"""


def _float(value: float) -> str:
    return float_literal(value, "float32")
