"""The public header of a package."""

from __future__ import annotations

from tvm_xengine.aot.emit_c.driver import (
    arguments_comment,
    eval_prototype,
    guard_protects_state,
    init_prototype,
    train_prototype,
)
from tvm_xengine.aot.emit_c.guards import guard_macros
from tvm_xengine.aot.package.code_size import CodeSize
from tvm_xengine.aot.package.contents import Package


def header_source(package: Package, code: CodeSize | None) -> str:
    """The text of ``<name>.h``, for C and C++; `code` states the stack, where it is known."""
    name, macro = package.name, package.macro
    settings = "\n".join(f"  float {hyper};" for hyper in package.hyper)
    setters = "\n".join(
        f"int32_t {name}_set_{hyper}({name}_ctx *ctx, float {hyper});" for hyper in package.hyper
    )
    promise = (
        "before any update: the state is untouched"
        if guard_protects_state(package.train)
        else "after some updates: load a checkpoint to go on"
    )
    return f"""\
/* {name}: a training step as plain C, made by tvm-xengine for {package.target.name}.
   The caller owns all memory. Every function may be called from several threads at once with
   different contexts. */
#ifndef {macro}_H
#define {macro}_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

#define {macro}_PLAN_HASH 0x{package.plan_hash:016x}ull
{_memory_macros(package, code)}

{guard_macros(package, promise)}

{_status_codes(macro)}

typedef struct {{
  uint8_t *region[{macro}_NUM_REGIONS];
{settings}
  uint32_t ready;
}} {name}_ctx;

/* Return 0 when all bytes were written, or read from `offset` on. */
typedef int (*{name}_write_fn)(void *user, const void *data, size_t bytes);
typedef int (*{name}_read_fn)(void *user, size_t offset, void *data, size_t bytes);

/* Checks and remembers the memory; pass {macro}_PLAN_HASH. */
{init_prototype(package)};
/* The state that training starts from. */
int32_t {name}_state_reset({name}_ctx *ctx);
/* Results may be NULL where they are not wanted.
{arguments_comment(package.train)} */
{train_prototype(package)};
/* The forward pass, as it is used after training.
{arguments_comment(package.evaluate)} */
{eval_prototype(package)};
{setters}
size_t {name}_checkpoint_bytes(void);
int32_t {name}_checkpoint_save(const {name}_ctx *ctx, {name}_write_fn write, void *user);
int32_t {name}_checkpoint_load({name}_ctx *ctx, {name}_read_fn read, void *user);

#ifdef __cplusplus
}}
#endif

#endif
"""


def _memory_macros(package: Package, code: CodeSize | None) -> str:
    """Alignments, sizes, the stack, and the place of each state tensor."""
    macro = package.macro
    align = 16 if package.backend.value == "llvm" else 8
    sizes = "\n".join(
        f"#define {macro}_{region.upper()}_BYTES {size}u\n"
        f"#define {macro}_{region.upper()}_KEPT_BYTES {package.kept_bytes[region]}u"
        f" /* state; the rest may be used for anything between calls */"
        for region, size in package.regions.items()
    )
    stack = (
        f"\n/* Measured with {code.flags}; functions of the C library come on top. */\n"
        f"#define {macro}_STACK_BYTES {code.stack_bytes}u"
        if code is not None and code.stack_bytes is not None
        else ""
    )
    offsets = "\n".join(
        f"#define {macro}_{tensor.place.device.upper()}_OFFSET_{tensor.c_name}"
        f" {tensor.place.offset_bytes}u /* {tensor.place.dtype} {list(tensor.place.shape)} */"
        for tensor in package.state
    )
    return f"""\
#define {macro}_ALIGN {package.alignment_bytes}u
#define {macro}_INPUT_ALIGN {align}u
#define {macro}_STATE_BYTES {package.state_bytes}u
#define {macro}_NUM_REGIONS {len(package.regions)}
{sizes}{stack}

/* Where each state tensor lies in its region. */
{offsets}"""


def _status_codes(macro: str) -> str:
    """What the functions of a package return."""
    return f"""\
enum {{
  {macro}_OK = 0,
  {macro}_EINVAL = -1,  /* a missing pointer, overlapping memory, results in a region, a step before any
                          state, a state before the memory */
  {macro}_EALIGN = -2,
  {macro}_ESIZE = -3,
  {macro}_EFORMAT = -4, /* no checkpoint, or of another version */
  {macro}_EPLAN = -5,   /* made for another plan */
  {macro}_ECRC = -6,
  {macro}_ENAN = -7,
  {macro}_EIO = -8,     /* a callback failed; a file that is too short */
  {macro}_ERANGE = -9   /* a label or index out of its range */
}};"""
