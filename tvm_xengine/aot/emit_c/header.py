"""The public header of a package."""

from __future__ import annotations

from importlib.metadata import version

from tvm_xengine.aot.emit_c.checkpoints.functions import checkpoint_bytes
from tvm_xengine.aot.emit_c.dma import dma_prototype, dma_types
from tvm_xengine.aot.emit_c.entry_point import guard_protects_state
from tvm_xengine.aot.emit_c.guards import guard_macros, may_be_not_finite
from tvm_xengine.aot.emit_c.prototypes import (
    argument_lines,
    argument_macros,
    init_prototype,
    prototype,
)
from tvm_xengine.aot.emit_c.status import status_codes
from tvm_xengine.aot.entries import Entry
from tvm_xengine.aot.package.code_size import CodeSize
from tvm_xengine.aot.package.contents import INTERFACE, Package


def header_source(package: Package, code: CodeSize | None) -> str:
    """The text of ``<name>.h``, for C and C++; `code` states the stack, where it is known."""
    name, macro = package.name, package.macro
    return f"""\
/* {name} as plain C for {package.target.name}, made by tvm-xengine {version("tvm-xengine")}.
   The caller owns all memory: no heap, no files, no globals that change. Every function may be called
   from several threads at once with different contexts and memory; a context is for one thread at a
   time. Functions return 0 or a negative code, which {name}_status_text says in words; a call that is
   refused has changed nothing, unless its comment says otherwise. */
#ifndef {macro}_H
#define {macro}_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

/* Raised when a program that compiled with this header no longer does. */
#define {macro}_INTERFACE_VERSION {INTERFACE}
/* Of the memory layout and the calls: what {name}_init takes. */
#define {macro}_PLAN_HASH 0x{package.plan_hash:016x}ull

{_memory_macros(package, code)}

{_entry_macros(package)}

{guard_macros(package, _promises(package))}

{status_codes(package)}

{dma_types(package)}{_context(package)}

/* Return 0 when all bytes were written, or read from `offset` on. */
typedef int (*{name}_write_fn)(void *user, const void *data, size_t bytes);
typedef int (*{name}_read_fn)(void *user, size_t offset, void *data, size_t bytes);

{_checkpoint_types(package)}

{_functions(package)}

#ifdef __cplusplus
}}
#endif

#endif
"""


def _promises(package: Package) -> list[str]:
    return [
        f"{entry.value} has updated nothing"
        if guard_protects_state(program)
        else f"{entry.value} has updated some state, so load a checkpoint"
        for entry, program in package.functions.items()
        if entry.learns
    ]


def _memory_macros(package: Package, code: CodeSize | None) -> str:
    """Alignments, sizes, the stack, and the place of each state tensor."""
    macro = package.macro
    align = 16 if package.backend.value == "llvm" else 8
    lines = [
        f"/* Alignment of the regions, and of inputs where the type asks for less. */\n"
        f"#define {macro}_ALIGN {package.alignment_bytes}u\n"
        f"#define {macro}_INPUT_ALIGN {align}u",
        "/* Bytes of each region, and the leading ones that hold state between calls; the rest may be used\n"
        "   for anything between calls. */\n"
        f"#define {macro}_NUM_REGIONS {len(package.regions)}\n"
        f"#define {macro}_STATE_BYTES {package.state_bytes}u",
    ]
    for region, size in package.regions.items():
        lines.append(
            f"#define {macro}_{region.upper()}_BYTES {size}u\n"
            f"#define {macro}_{region.upper()}_KEPT_BYTES {package.kept_bytes[region]}u"
        )
        if package.accumulates:
            lines.append(
                f"/* The same while gradients are accumulated. */\n"
                f"#define {macro}_{region.upper()}_ACCUMULATED_BYTES {package.summed_bytes[region]}u"
            )
    if code is not None and code.stack_bytes is not None:
        lines.append(
            f"/* Stack, measured with {code.flags}; functions of the C library come on top. */\n"
            f"#define {macro}_STACK_BYTES {code.stack_bytes}u"
        )
    if package.state:
        lines.append("/* Where each state tensor lies in its region. */")
    lines += [
        f"#define {macro}_{tensor.place.device.upper()}_OFFSET_{tensor.c_name}"
        f" {tensor.place.offset_bytes}u /* {tensor.place.dtype} {list(tensor.place.shape)} */"
        for tensor in package.state
    ]
    return "\n".join(lines)


def _entry_macros(package: Package) -> str:
    """For each entry point its arguments, and the bytes of each region that it uses."""
    parts = []
    for entry, program in package.functions.items():
        start = f"{package.macro}_{entry.name}"
        rows = [f"/* {entry.value} */"]
        rows += [
            f"#define {start}_{region.upper()}_BYTES {program.interface.arena_bytes[region]}u"
            for region in package.regions
        ]
        parts.append("\n".join([*rows, *argument_macros(package, entry)]))
    return "\n\n".join(parts)


def _context(package: Package) -> str:
    name, macro = package.name, package.macro
    settings = "".join(f"  float {hyper};\n" for hyper in package.hyper)
    sums = (
        "  float gradient_weight, gradient_scale;\n  uint32_t samples; /* accumulated so far */\n"
        if package.accumulates
        else ""
    )
    dma = f"  {name}_dma dma; /* see {name}_use_dma */\n" if package.channels else ""
    return f"""\
/* Belongs to the functions below: read it, and let only them write it. */
typedef struct {{
  uint8_t *region[{macro}_NUM_REGIONS];
{settings}{sums}{dma}  uint32_t ready; /* whether there is a state */
}} {name}_ctx;"""


def _functions(package: Package) -> str:
    """The declarations, each with what it does, takes and returns."""
    name, macro = package.name, package.macro
    parts = [
        f"/* A code in words; never NULL. */\nconst char *{name}_status_text(int32_t status);",
        f"/* Checks and remembers the memory; pass {macro}_PLAN_HASH. There is no state yet.\n"
        f"   Returns EINVAL, EALIGN, ESIZE, EPLAN. */\n{init_prototype(package)};",
        f"/* Writes the state that the package was exported with. Returns EINVAL, EALIGN. */\n"
        f"int32_t {name}_state_reset({name}_ctx *ctx);",
    ]
    for entry in package.functions:
        lines = "".join(f"\n     {line}" for line in argument_lines(package, entry))
        parts.append(
            f"/* {entry.purpose}{_loss_note(package, entry)}{lines}\n"
            f"   Returns {', '.join(_returned(package, entry))}. */\n"
            f"{prototype(package, entry)};"
        )
    if package.accumulates:
        parts.append(
            f"/* Forgets the accumulated gradients, if there are any. Returns EINVAL, EALIGN. */\n"
            f"int32_t {name}_discard({name}_ctx *ctx);"
        )
    if package.channels:
        parts.append(
            f"/* Takes how regions are copied, after init, which forgets it. NULL: by memcpy at\n"
            f"   their start. Returns EINVAL, EALIGN. */\n{dma_prototype(package)};"
        )
    parts += [
        f"/* Changes a setting of the state: state_reset sets the first one, and checkpoints hold it, too.\n"
        f"   Returns EINVAL, EALIGN; ERANGE where it is negative, NaN or infinite. */\n"
        f"int32_t {name}_set_{hyper}({name}_ctx *ctx, float {hyper});"
        for hyper in package.hyper
    ]
    return "\n".join([*parts, _checkpoint_functions(package)])


def _loss_note(package: Package, entry: Entry) -> str:
    """That a model returns its loss, for which it takes targets."""
    results = package.functions[entry].interface.results
    is_loss = not entry.learns and "output" in results and not results["output"].shape
    return (
        " The model returns its loss,\n   so that targets are among its inputs." if is_loss else ""
    )


def _checkpoint_types(package: Package) -> str:
    name, macro = package.name, package.macro
    return f"""\
/* What a load does with a tensor that the checkpoint lacks. INITIALISE_ABSENT sets state of the
   optimizer, and settings, as state_reset does; a tensor of the model only where both packages were
   exported with the same values. */
enum {{ {macro}_REFUSE_ABSENT = 0, {macro}_INITIALISE_ABSENT = 1 }};

/* What a load found: the number of the checkpoint in its slots, the tensors of this package that were
   taken and initialised, and the tensors of the checkpoint that this package does not have. */
typedef struct {{
  uint64_t sequence;
  uint32_t taken, initialised, ignored;
  const char *tensor; /* for which it was refused, or NULL */
}} {name}_loaded;

/* A place for one checkpoint. `erase` is called before the first write; where it is NULL, you say where
   the next write begins before you save. */
typedef struct {{
  int (*erase)(void *user);
  {name}_write_fn write;
  {name}_read_fn read;
  void *user;
}} {name}_slot;"""


def _checkpoint_functions(package: Package) -> str:
    name = package.name
    forgets = "; forgets accumulated gradients" if package.accumulates else ""
    of_settings = " ERANGE: a setting that its function would refuse." if package.hyper else ""
    return f"""\
/* Bytes of a checkpoint, for slots in flash and buffers; the function is for code that knows no header. */
#define {package.macro}_CHECKPOINT_BYTES {checkpoint_bytes(package)}u
size_t {name}_checkpoint_bytes(void);
/* Writes the state by the names of its tensors. Returns EINVAL, EALIGN, EIO. */
int32_t {name}_checkpoint_save(const {name}_ctx *ctx, {name}_write_fn write, void *user);
/* Loads a checkpoint of this package, or of one of the same model with another plan, batch size or
   optimizer. State of another optimizer is ignored. Reads and checks everything, and then once more
   into the state{forgets}; if that second reading differs, there is no state any more.
   `report` may be NULL.
   Returns EINVAL, EALIGN, EFORMAT, ECRC, EIO, EABSENT, ESHAPE, EFROZEN.{of_settings} */
int32_t {name}_checkpoint_load({name}_ctx *ctx, {name}_read_fn read, void *user, uint32_t absent,
                               {name}_loaded *report);
/* Writes a checkpoint with the next number into the slot whose own is damaged or oldest, and reads it
   back; the newest one stays, so that power may fail at any moment. Takes two slots or more.
   Returns EINVAL, EALIGN, EIO, EFORMAT, ECRC. */
int32_t {name}_slots_save(const {name}_ctx *ctx, const {name}_slot *slots, uint32_t count);
/* Loads the newest undamaged checkpoint, as checkpoint_load. EFORMAT: no slot has one. */
int32_t {name}_slots_load({name}_ctx *ctx, const {name}_slot *slots, uint32_t count, uint32_t absent,
                          {name}_loaded *report);"""


def _returned(package: Package, entry: Entry) -> list[str]:
    """The codes other than success that an entry point returns."""
    codes = ["EINVAL", "EALIGN"]
    codes += ["ENAN"] if may_be_not_finite(package, entry) else []
    ranges = package.functions[entry].interface.ranges
    codes += ["ERANGE"] if ranges and entry is not Entry.APPLY else []
    codes += ["EBUSY"] if package.accumulates and entry is Entry.TRAIN_STEP else []
    return codes + (["EEMPTY"] if entry is Entry.APPLY else [])
