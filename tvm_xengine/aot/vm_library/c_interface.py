"""The C interface of a library for TVM's virtual machine."""

from __future__ import annotations

from collections.abc import Mapping

import tvm

from tvm_xengine.aot.c_names import c_identifier
from tvm_xengine.aot.vm_library.layout import Library
from tvm_xengine.program.step_program import ArenaView


def loader_header(library: Library) -> str:
    """The text of ``<name>.h``."""
    name, macro = library.name, library.name.upper()
    places = "\n".join(
        f"#define {macro}_{kind}_{c_identifier(key)} {view.offset_bytes}u"
        f" /* {view.dtype} {list(view.shape)} */"
        for kind, views in _kinds(library).items()
        for key, view in views.items()
    )
    return f"""\
/* {name}: a training step for TVM's virtual machine on {library.target}, made by tvm-xengine.
   Needs libtvm_runtime and libtvm_ffi of the Python packages apache-tvm and apache-tvm-ffi. */
#ifndef {macro}_H
#define {macro}_H

#ifdef __cplusplus
extern "C" {{
#endif

#define {macro}_ARENA_BYTES {library.arena_bytes}u
#define {macro}_STATE_BYTES {library.state_bytes}u /* the arena's beginning: all there is to keep */
#define {macro}_ALIGN 64u

/* Where tensors lie in the arena. Inputs must be written before every call; results and the
   output stand until the next call. */
{places}

typedef struct {{
  void *module, *machine, *train, *eval;
  void *tensors[{len(library.train_views) + len(library.eval_views)}];
}} {name}_step;

/* All return 0, or 1 after the runtime has raised an error (TVMFFIErrorMoveFromRaised tells which). */
int {name}_open({name}_step *step, const char *library, void *arena);
int {name}_train_step({name}_step *step);
int {name}_eval({name}_step *step);
void {name}_close({name}_step *step);

#ifdef __cplusplus
}}
#endif

#endif
"""


def _kinds(library: Library) -> Mapping[str, Mapping[str, ArenaView]]:
    return {
        "IN": library.inputs,
        "RESULT": library.results,
        "EVAL_IN": library.eval_inputs,
        "EVAL_OUT": {"output": library.output},
        "STATE": library.state,
    }


def loader_source(library: Library) -> str:
    """The text of ``<name>.c``: the functions of the header with the C interface of tvm-ffi."""
    views = [*library.train_views, *library.eval_views]
    shapes = [extent for view in views for extent in view.shape]
    rows = []
    at = 0
    for view in views:
        dtype = tvm.DataType(view.dtype)
        kind = f"{int(dtype.type_code)}, {int(dtype.bits)}"
        rows.append(f"    {{{kind}, {view.offset_bytes}u, {len(view.shape)}, {at}}}")
        at += len(view.shape)
    return _LOADER.format(
        name=library.name,
        MACRO=library.name.upper(),
        rows=",\n".join(rows),
        shapes=", ".join(str(extent) for extent in shapes) or "0",
        num_shapes=max(len(shapes), 1),
        train=len(library.train_views),
        eval=len(library.eval_views),
    )


_LOADER = """\
#include "{name}.h"

#include <string.h>
#include <tvm/ffi/c_api.h>

enum {{ TRAIN = {train}, EVAL = {eval} }};

static int64_t shapes[{num_shapes}] = {{{shapes}}};

static const struct {{
  uint8_t code, bits;
  uint32_t offset;
  int32_t ndim, shape;
}} places[TRAIN + EVAL] = {{
{rows}}};

static DLManagedTensor views[TRAIN + EVAL];

static void keep(DLManagedTensor *self) {{ (void)self; }}

static int call(void *function, TVMFFIAny *args, int count, void **result) {{
  TVMFFIAny made;
  memset(&made, 0, sizeof made);
  if (!function || TVMFFIFunctionCall(function, args, count, &made)) return 1;
  if (result) *result = made.v_ptr;
  else if (made.type_index >= kTVMFFIStaticObjectBegin) TVMFFIObjectDecRef(made.v_ptr);
  return 0;
}}

static int global(const char *key, void **function) {{
  TVMFFIByteArray bytes = {{key, strlen(key)}};
  return TVMFFIFunctionGetGlobal(&bytes, function) || !*function;
}}

static TVMFFIAny integer(int64_t value) {{
  TVMFFIAny any;
  memset(&any, 0, sizeof any);
  any.type_index = kTVMFFIInt;
  any.v_int64 = value;
  return any;
}}

static TVMFFIAny object(int32_t type, void *handle) {{
  TVMFFIAny any;
  memset(&any, 0, sizeof any);
  any.type_index = type;
  any.v_ptr = handle;
  return any;
}}

static TVMFFIAny text(const char *value) {{
  TVMFFIAny any;
  memset(&any, 0, sizeof any);
  any.type_index = kTVMFFIRawStr;
  any.v_c_str = value;
  return any;
}}

static int member(void *module, const char *key, void **function) {{
  TVMFFIAny args[3];
  void *get = 0;
  int failed;
  args[0] = object(kTVMFFIModule, module);
  args[1] = text(key);
  args[2] = object(kTVMFFIBool, 0);
  args[2].v_int64 = 1;
  if (global("ffi.ModuleGetFunction", &get)) return 1;
  failed = call(get, args, 3, function) || !*function;
  TVMFFIObjectDecRef(get);
  return failed;
}}

int {name}_open({name}_step *step, const char *library, void *arena) {{
  TVMFFIAny path = text(library), device[3];
  void *load = 0, *make = 0, *start = 0;
  memset(step, 0, sizeof *step);
  if ((uintptr_t)arena % {MACRO}_ALIGN) return 1;
  if (global("ffi.ModuleLoadFromFile", &load) || call(load, &path, 1, &step->module)) return 1;
  TVMFFIObjectDecRef(load);
  if (member(step->module, "vm_load_executable", &make)) return 1;
  if (call(make, 0, 0, &step->machine)) return 1;
  TVMFFIObjectDecRef(make);
  device[0] = integer(kDLCPU);
  device[1] = integer(0);
  device[2] = integer(2); /* pooled; nothing is allocated */
  if (member(step->machine, "vm_initialization", &start) || call(start, device, 3, 0)) return 1;
  TVMFFIObjectDecRef(start);
  for (int i = 0; i < TRAIN + EVAL; i++) {{
    DLTensor *tensor = &views[i].dl_tensor;
    memset(&views[i], 0, sizeof views[i]);
    tensor->data = (char *)arena + places[i].offset;
    tensor->device.device_type = kDLCPU;
    tensor->ndim = places[i].ndim;
    tensor->dtype.code = places[i].code;
    tensor->dtype.bits = places[i].bits;
    tensor->dtype.lanes = 1;
    tensor->shape = shapes + places[i].shape;
    views[i].deleter = keep;
    if (TVMFFITensorFromDLPack(&views[i], 1, 1, &step->tensors[i])) return 1;
  }}
  return member(step->machine, "train_step", &step->train) ||
         member(step->machine, "eval", &step->eval);
}}

static int run(void *function, void **tensors, int count) {{
  TVMFFIAny args[TRAIN > EVAL ? TRAIN : EVAL];
  for (int i = 0; i < count; i++) args[i] = object(kTVMFFITensor, tensors[i]);
  return call(function, args, count, 0);
}}

int {name}_train_step({name}_step *step) {{ return run(step->train, step->tensors, TRAIN); }}

int {name}_eval({name}_step *step) {{ return run(step->eval, step->tensors + TRAIN, EVAL); }}

void {name}_close({name}_step *step) {{
  for (int i = 0; i < TRAIN + EVAL; i++)
    if (step->tensors[i]) TVMFFIObjectDecRef(step->tensors[i]);
  if (step->train) TVMFFIObjectDecRef(step->train);
  if (step->eval) TVMFFIObjectDecRef(step->eval);
  if (step->machine) TVMFFIObjectDecRef(step->machine);
  if (step->module) TVMFFIObjectDecRef(step->module);
  memset(step, 0, sizeof *step);
}}
"""
