"""Loops that copy bytes, a fixed step apart, written as calls of functions that copy several at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import ir, sym, tirx

from tvm_xengine.aot.emit_c.vectors.loops import (
    Memory,
    element_type,
    flattened,
    mentions,
    step_of,
    with_values,
    without_binds,
)

COPY_BYTES, FILL_BYTES = "xe_copy_bytes", "xe_fill_bytes"

_LEAST_BYTES = 3
"""Of a loop; fewer take as long as statements."""

_MOST_STEP = 0xFFFF // 7
"""Helium's offsets of eight bytes have 16 bits."""


@dataclass(frozen=True)
class ByteLoop:
    """A loop that stores bytes.

    Attributes
    ----------
    buffer, first, step
        Where they are stored.
    value
        The first byte that is read, or what all are.
    value_step
        From one byte that is read to the next.
    """

    buffer: ir.Var
    first: ir.Expr
    step: int
    value: ir.Expr
    value_step: int
    extent: int

    @property
    def function(self) -> str:
        """Name of the C function."""
        return COPY_BYTES if isinstance(self.value, ir.TensorLoad) else FILL_BYTES


def read_byte_loop(loop: tirx.For, memory: Memory) -> ByteLoop | None:
    """The loop as a copy of bytes, None where it is none."""
    loop = flattened(loop)
    store, lane = without_binds(loop.body), loop.loop_var
    extents = (loop.min, loop.extent)
    if loop.step is not None or not all(isinstance(part, tirx.IntImm) for part in extents):
        return None
    if not isinstance(store, tirx.BufferStore) or element_type(store.buffer) != "int8":
        return None
    step = step_of(store.indices[0], lane)
    if int(loop.min) or int(loop.extent) < _LEAST_BYTES or step is None or step > _MOST_STEP:
        return None
    value, value_step = store.value, 0
    if isinstance(value, ir.TensorLoad) and mentions(value, lane):
        read = step_of(value.indices[0], lane)
        roots = [memory.get(buffer, buffer) for buffer in (value.source, store.buffer)]
        if read is None or read > _MOST_STEP or roots[0].same_as(roots[1]):
            return None
        value_step = read
    elif not isinstance(value, tirx.IntImm):
        return None
    start = {lane: tirx.const(0, str(lane.ty.dtype))}
    simplify = sym.Analyzer().simplify
    first = simplify(with_values(store.indices[0], start))
    if value_step:
        value = value.source[simplify(with_values(value.indices[0], start))]
    return ByteLoop(store.buffer, first, step, value, value_step, int(loop.extent))


_IN_ASSEMBLY = "#if defined(__ARM_FEATURE_MVE) && defined(__GNUC__)"
_AT = "vmulq_n_u16(vidupq_n_u16(0, 1), (uint16_t)"


def _copying(steps: Sequence[str], bits: int, given: str, changed: str) -> str:
    """A loop over vectors of elements of some bits; the core leaves out what is behind the last byte."""
    lines = [f"wlstp.{bits} lr, %[count], 1f", f"2: {steps[0]}", *steps[1:], "letp lr, 2b", "1:"]
    text = "\n".join(f'        "{line}\\n"' for line in lines)
    return f"""\
    __asm__ volatile(
{text}
        : {changed}
        : {", ".join(filter(None, ('[count] "r"(count)', given)))}
        : "q0", "lr", "memory");"""


_TO, _FROM = '[to] "+l"(to)', '[from] "+r"(from)'
_READ = ("vldrb.u16 q0, [%[from], %q[from_at]]", "add %[from], %[from], %[ahead]")
_READ_GIVEN = '[from_at] "w"(from_at), [ahead] "r"(8 * from_step)'
_PLACES = '[at] "w"(at), [further] "r"(8 * step)'
_ALL = '[all] "w"(all)'
_ON = "add %[to], %[to], %[further]"
_COPIED = {
    "neighbours": _copying(
        ("vldrb.8 q0, [%[from]], #16", "vstrb.8 q0, [%[to]], #16"), 8, "", f"{_TO}, {_FROM}"
    ),
    "gathered": _copying((*_READ, "vstrb.16 q0, [%[to]], #8"), 16, _READ_GIVEN, f"{_TO}, {_FROM}"),
    "apart": _copying(
        (*_READ, "vstrb.16 q0, [%[to], %q[at]]", _ON),
        16,
        f"{_READ_GIVEN}, {_PLACES}",
        f"{_TO}, {_FROM}",
    ),
}
_FILLED = {
    "neighbours": _copying(("vstrb.8 %q[all], [%[to]], #16",), 8, _ALL, _TO),
    "apart": _copying(("vstrb.16 %q[all], [%[to], %q[at]]", _ON), 16, f"{_ALL}, {_PLACES}", _TO),
}
BYTE_FUNCTIONS: dict[str, str] = {
    COPY_BYTES: f"""\
{_IN_ASSEMBLY}
#include <arm_mve.h>
#endif
static inline void {COPY_BYTES}(int8_t *to, int32_t step, const int8_t *from, int32_t from_step,
                                 int32_t count) {{
{_IN_ASSEMBLY}
  const uint16x8_t at = {_AT}step), from_at = {_AT}from_step);
  if (step == 1 && from_step == 1) {{
{_COPIED["neighbours"]}
  }} else if (step == 1) {{
{_COPIED["gathered"]}
  }} else {{
{_COPIED["apart"]}
  }}
#else
  for (int32_t k = 0; k < count; k++) to[k * step] = from[k * from_step];
#endif
}}""",
    FILL_BYTES: f"""\
{_IN_ASSEMBLY}
#include <arm_mve.h>
#endif
static inline void {FILL_BYTES}(int8_t *to, int32_t step, int8_t value, int32_t count) {{
{_IN_ASSEMBLY}
  const uint16x8_t at = {_AT}step);
  const int8x16_t all = vdupq_n_s8(value);
  if (step == 1) {{
{_FILLED["neighbours"]}
  }} else {{
{_FILLED["apart"]}
  }}
#else
  for (int32_t k = 0; k < count; k++) to[k * step] = value;
#endif
}}""",
}
"""Definition of each function, by its name.

In assembly: GCC 12.2 takes a store of some lanes for one of all, and drops what was stored before.
"""
