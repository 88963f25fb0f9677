"""Copies between regions that the firmware's DMA makes while the processor computes."""

from __future__ import annotations

from tvm_xengine.aot.emit_c.status import CHECK_CTX
from tvm_xengine.aot.package.contents import Package
from tvm_xengine.aot.plan.tiles import BUFFERS, TiledKernel
from tvm_xengine.program.transfers import Start, Wait, in_transfers

DMA_FIELDS = ("start", "wait", "user")
"""What the firmware hands over."""


def dma_types(package: Package) -> str:
    """What the firmware hands over: declarations for the header; empty where nothing is copied so."""
    if not package.channels:
        return ""
    name, macro = package.name, package.macro
    rows = "".join(
        f"\n     {number}: {src} to {dst}" for number, (src, dst) in enumerate(package.channels)
    )
    return f"""\
/* How regions are copied while the processor computes. Channels:{rows}
   `start` begins a copy and returns; the copies of a channel are made one after the other, in that order.
   `wait` returns when at most `pending` of the copies started on a channel are left; what the others have
   written can then be read, and what they have read written (with a data cache: clean it before a copy,
   invalidate it after). Every call of the package ends with nothing left. */
#define {macro}_DMA_CHANNELS {len(package.channels)}
/* No more copies of a channel are under way at once. */
#define {macro}_DMA_MOST_COPIES {most_copies(package)}
typedef struct {{
  void (*start)(void *user, uint32_t channel, void *to, const void *from, size_t bytes);
  void (*wait)(void *user, uint32_t channel, uint32_t pending);
  void *user;
}} {name}_dma;

"""


def most_copies(package: Package) -> int:
    """No channel has more copies under way: those that were started before a kernel, and its own."""
    most, own = 0, 0
    for kernel in package.kernels.values():
        for copies in kernel.channels.values() if isinstance(kernel, TiledKernel) else ():
            own = max(own, BUFFERS * copies)
    for program in package.functions.values():
        left = dict.fromkeys(package.channels, 0)
        for action in in_transfers(program, package.channels):
            match action:
                case Start(channel):
                    left[channel] += 1
                case Wait(channel, pending):
                    left[channel] = pending
            most = max(most, *left.values())
    return most + own


def dma_prototype(package: Package) -> str:
    """The declaration of the function that takes them, without semicolon."""
    return f"int32_t {package.name}_use_dma({package.name}_ctx *ctx, const {package.name}_dma *dma)"


def dma_functions(package: Package) -> str:
    """Their definitions in the source of a package."""
    name, macro = package.name, package.macro
    taken = "\n".join(f"  ctx->dma.{field} = dma ? dma->{field} : NULL;" for field in DMA_FIELDS)
    return f"""\
{dma_prototype(package)} {{
{CHECK_CTX}
  if (!ctx->region[0]) return {macro}_EINVAL;
  if ((uintptr_t)dma % _Alignof({name}_dma)) return {macro}_EALIGN;
  if (dma && (!dma->start || !dma->wait)) return {macro}_EINVAL;
{taken}
  return {macro}_OK;
}}

static void dma_start(const {name}_ctx *ctx, uint32_t channel, void *to, const void *from, size_t bytes) {{
  if (ctx->dma.start) ctx->dma.start(ctx->dma.user, channel, to, from, bytes);
  else memcpy(to, from, bytes);
}}

static void dma_wait(const {name}_ctx *ctx, uint32_t channel, uint32_t pending) {{
  if (ctx->dma.wait) ctx->dma.wait(ctx->dma.user, channel, pending);
}}"""
