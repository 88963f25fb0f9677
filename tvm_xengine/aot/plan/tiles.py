"""Kernels that run tile by tile, while the operands of the next tile are copied from a slow region.

Classic double buffering: rows of the result are cut, so that each sum is made whole and as before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvm import ir, s_tir, tirx

from tvm_xengine.kernels.device_kernel import DeviceKernel, TensorSpec, tensor_specs
from tvm_xengine.kernels.inplace import num_outputs
from tvm_xengine.kernels.schedules.accumulation import mentions
from tvm_xengine.kernels.schedules.blocks import Block, read_blocks
from tvm_xengine.kernels.schedules.inline import inline_elementwise
from tvm_xengine.kernels.schedules.products.contraction import read_contraction
from tvm_xengine.kernels.slices.pieces import divide
from tvm_xengine.kernels.slices.write import piece_kernels
from tvm_xengine.program.transfers import Channel
from tvm_xengine.relax_ir.kernel_attributes import INPLACE_ATTR, inplace_pairs
from tvm_xengine.scheduling.replicas.batch_cut import Span
from tvm_xengine.scheduling.sizes import round_up

_LANES = 4
"""Neighbours that loops in C add up side by side; rows of fewer results are added up in so many parts."""
BUFFERS = 2
"""Of each operand in a slow region: one is copied while the kernel works on the other."""


@dataclass(frozen=True)
class Cut:
    """How an operand is cut in tiles.

    Attributes
    ----------
    region
        The slow region where the operand lies; empty where the kernel reads or writes it in place.
    chunks
        A tile of it is so many runs of bytes.
    chunk_bytes, stride_bytes
        Length of each, and how far they lie apart in the operand.
    offset_bytes
        Of its buffers in the workspace; None without.
    """

    region: str
    chunks: int
    chunk_bytes: int
    stride_bytes: int
    offset_bytes: int | None = None

    @property
    def tile_bytes(self) -> int:
        """Bytes of one tile."""
        return self.chunks * self.chunk_bytes


@dataclass(frozen=True, kw_only=True)
class TiledKernel(DeviceKernel):
    """A kernel in tiles; `func` computes one of them.

    Attributes
    ----------
    tile
        The kernel of one tile, whose scratch memory is the begin of the workspace.
    tiles
        How many there are.
    cuts
        For each of ``(inputs..., outputs...)`` how it is cut; None where every tile takes all of it.
    regions
        For each operand the slow region where it lies, cut or not; empty for the others.
    first
        The region of the workspace and all other operands.
    """

    tile: DeviceKernel
    tiles: int
    cuts: tuple[Cut | None, ...]
    regions: tuple[str, ...]
    first: str

    def copied(self, *, out: bool) -> tuple[tuple[int, Cut], ...]:
        """Numbers and cuts of the operands that are copied before a tile, or after it."""
        numbers = range(len(self.inputs), len(self.cuts)) if out else range(len(self.inputs))
        cuts = ((number, self.cuts[number]) for number in numbers)
        return tuple((number, cut) for number, cut in cuts if cut is not None and cut.region)

    @property
    def channels(self) -> Mapping[Channel, int]:
        """How many copies each channel makes for one tile."""
        found: dict[Channel, int] = {}
        for out in (False, True):
            for _, cut in self.copied(out=out):
                pair = (self.first, cut.region) if out else (cut.region, self.first)
                found[pair] = found.get(pair, 0) + cut.chunks
        return found


@dataclass(frozen=True)
class TiledFunction:
    """A function cut along a dimension of its results.

    Attributes
    ----------
    tile
        Computes one tile.
    dimensions
        For each operand the dimension that is cut; None for what every tile takes whole.
    """

    whole: tirx.PrimFunc
    tile: tirx.PrimFunc
    tiles: int
    dimensions: tuple[int | None, ...]


def cut_results(func: tirx.PrimFunc, dimension: int, tiles: int) -> TiledFunction | None:
    """`func` on a part of its results, with all that it adds up; None where it cannot be cut so.

    Parameters
    ----------
    dimension
        Of every result.
    """
    apart = func.without_attr(INPLACE_ATTR)
    blocks, count = read_blocks(apart), num_outputs(func)
    if blocks is None:
        return None
    inputs, outputs = apart.params[:-count], apart.params[-count:]
    cut: dict[ir.Var, int] = {}
    for output in outputs:
        if not _follow(blocks, output, dimension, cut):
            return None
    sliced = {number: cut[one] for number, one in enumerate(inputs) if one in cut}
    division = divide(apart, sliced, (), tiles) if sliced else None
    if division is None or not division.is_one_piece or division.pieces[0].sums:
        return None
    piece = division.pieces[0]
    first, *others = piece_kernels(division, piece, [Span(k, 1) for k in range(tiles)])
    if any(other is not first for other in others):
        return None  # what it computes depends on where the tile lies
    last = [int(param.ty.shape[-1]) for param in first.params[-count:] if len(param.ty.shape)]
    if min(last, default=_LANES) < _LANES and not _is_product(first):
        return None  # sums would be shared out over the lanes, and added in another order
    used, taken = [*piece.inputs, *piece.outputs], iter(first.params)
    if [param for param in apart.params if param in used] != used:
        return None
    # An operand that nothing reads, as the learning rate of Adam's update, stays as it is.
    params = [next(taken) if param in used else param for param in apart.params]
    first = tirx.PrimFunc(params, first.body, first.ret_type, first.attrs)
    dimensions = tuple(division.sliced.get(param) for param in apart.params)
    if any(d is None for d in dimensions[-count:]):
        return None
    pairs = inplace_pairs(func)
    if any(dimensions[pair.input] != dimensions[len(inputs) + pair.output] for pair in pairs):
        return None
    return TiledFunction(func, first, tiles, dimensions)


def _is_product(func: tirx.PrimFunc) -> bool:
    """Whether the sums of a kernel are made one term after another, as those of products are."""
    sch = s_tir.Schedule(func, error_render_level="none", debug_mask="none")
    inline_elementwise(sch)
    blocks = read_blocks(sch.mod["main"])
    return blocks is not None and read_contraction(blocks, sch.mod["main"].params) is not None


def _follow(
    blocks: Sequence[Block], buffer: ir.Var, dimension: int, cut: dict[ir.Var, int]
) -> bool:
    """Note which dimension of each buffer moves with one of `buffer`; False where two would."""
    if buffer in cut:
        return cut[buffer] == dimension
    if dimension >= len(buffer.ty.shape):
        return False
    cut[buffer] = dimension
    for block in blocks:
        for store in block.stores:
            if not store.buffer.same_as(buffer):
                continue
            axes = [a for a in block.spatial if mentions(store.indices[dimension], a.var)]
            if not axes:
                continue
            for load in block.loads:
                for d, at in enumerate(load.index):
                    if mentions(at, axes[0].var) and not _follow(blocks, load.buffer, d, cut):
                        return False
    return True


def tiled_kernel(
    function: TiledFunction,
    regions: Sequence[str],
    first: str,
    alignment_bytes: int,
    tile: DeviceKernel,
) -> TiledKernel | None:
    """The kernel of a function in tiles; None where nothing that is cut lies in a slow region.

    Parameters
    ----------
    regions
        For each operand the slow region where it lies; empty for one that the processor reads at once.
    tile
        The kernel of one tile.
    """
    specs, count = tensor_specs(function.whole), num_outputs(function.whole)
    if not any(r and d is not None for r, d in zip(regions, function.dimensions, strict=True)):
        return None
    inputs = len(specs) - count
    pairs = inplace_pairs(function.whole)
    over = {inputs + pair.output for pair in pairs}
    at = round_up(tile.workspace_bytes, alignment_bytes)
    cuts: list[Cut | None] = []
    for number, (spec, region) in enumerate(zip(specs, regions, strict=True)):
        dimension = function.dimensions[number]
        if dimension is None:
            cuts.append(None)
            continue
        cut = _cut(spec, dimension, function.tiles, region)
        buffers = BUFFERS if region else int(cut.chunks > 1 or number in over)
        offset = at if buffers else None
        at += buffers * round_up(cut.tile_bytes, alignment_bytes)
        cuts.append(Cut(region, cut.chunks, cut.chunk_bytes, cut.stride_bytes, offset))
    where = "_".join(region or "x" for region in regions)
    return TiledKernel(
        func=tile.func,
        symbol=f"{tile.symbol}_{function.tiles}_{where}",
        name=f"{tile.name}_tile",
        key=f"{tile.key}_{function.tiles}_{where}",
        target=tile.target,
        inputs=specs[:inputs],
        outputs=specs[inputs:],
        workspace_bytes=at,
        inplace=pairs,
        is_parallel=False,
        tile=tile,
        tiles=function.tiles,
        cuts=tuple(cuts),
        regions=tuple(regions),
        first=first,
    )


def _cut(spec: TensorSpec, dimension: int, tiles: int, region: str) -> Cut:
    chunks = math.prod(spec.shape[:dimension])
    stride = spec.size_bytes // chunks
    return Cut(region, chunks, stride // tiles, stride)
