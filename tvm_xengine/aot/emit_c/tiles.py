"""C functions that run a kernel tile by tile, and copy what the next tile needs meanwhile."""

from __future__ import annotations

from tvm_xengine.aot.emit_c.types_in_c import stored_type
from tvm_xengine.aot.package.contents import Package
from tvm_xengine.aot.plan.tiles import Cut, TiledKernel
from tvm_xengine.program.transfers import Channel
from tvm_xengine.scheduling.sizes import round_up


def tiled_name(package: Package, symbol: str) -> str:
    """The name of the function that runs a tiled kernel."""
    return f"{package.codes[symbol].name}s"


def tiled_functions(package: Package) -> list[str]:
    """Their definitions in the source of a package."""
    return [
        _function(package, symbol, kernel)
        for symbol, kernel in package.kernels.items()
        if isinstance(kernel, TiledKernel)
    ]


def tiled_operands(package: Package, symbol: str, kernel: TiledKernel) -> list[int]:
    """Which of ``(inputs..., outputs..., workspace)`` such a function takes, in order."""
    count = len(kernel.cuts)
    used = [number for number in package.codes[symbol].arguments if number < count]
    return [*used, count] if kernel.workspace_bytes else used


def _function(package: Package, symbol: str, kernel: TiledKernel) -> str:
    count, tiles = len(kernel.cuts), kernel.tiles
    used = tiled_operands(package, symbol, kernel)
    inputs = len(kernel.inputs)
    params = [f"{'const ' * (number < inputs)}void *{_name(number, kernel)}" for number in used]
    loads = [one for one in kernel.copied(out=False) if one[0] in used]
    stores = kernel.copied(out=True)
    lines = [
        f"/* {package.codes[symbol].name} on {tiles} tiles; the next comes, the last goes meanwhile. */",
        f"static void {tiled_name(package, symbol)}(const {package.name}_ctx *ctx, {', '.join(params)}) {{",
        "  uint32_t ahead;",
        f"  for (ahead = 0; ahead <= {tiles}u; ahead++) {{",
        "    const uint32_t tile = ahead - 1u, half = tile & 1u;",
    ]
    if loads:
        lines.append(f"    if (ahead < {tiles}u) {{")
        for number, cut in loads:
            to = f"(uint8_t *)work + {cut.offset_bytes}u + (ahead & 1u) * {_apart(cut, package)}u"
            lines += _copy(package, (cut.region, kernel.first), cut, to, number, kernel, "ahead")
        lines.append("    }")
    lines.append("    if (!ahead) continue;")
    for region in dict.fromkeys(cut.region for _, cut in loads):
        left = sum(cut.chunks for _, cut in loads if cut.region == region)
        channel = package.channels.index((region, kernel.first))
        lines.append(f"    dma_wait(ctx, {channel}u, ahead < {tiles}u ? {left}u : 0u);")
    cuts = [(number, kernel.cuts[number]) for number in used if number < count]
    moved = [
        (number, cut)
        for number, cut in cuts
        if cut is not None and not cut.region and cut.offset_bytes is not None
    ]
    for number, cut in moved:
        lines += _moved(cut, number, kernel, out=False) if number < inputs else []
    lines += _waits(package, kernel, "    ", tiles_left=1)
    lines.append(f"    {package.codes[symbol].name}({', '.join(_given(package, symbol, kernel))});")
    for number, cut in moved:
        lines += _moved(cut, number, kernel, out=True) if number >= inputs else []
    for number, cut in stores:
        to = f"(const uint8_t *)work + {cut.offset_bytes}u + half * {_apart(cut, package)}u"
        lines += _copy(package, (kernel.first, cut.region), cut, to, number, kernel, "tile")
    lines += ["  }", *_waits(package, kernel, "  ", tiles_left=0), "}"]
    return "\n".join(lines)


def _name(number: int, kernel: TiledKernel) -> str:
    return "work" if number == len(kernel.cuts) else f"p{number}"


def _apart(cut: Cut, package: Package) -> int:
    """How far the two buffers of an operand lie apart."""
    return round_up(cut.tile_bytes, package.alignment_bytes)


def _copy(
    package: Package,
    channel: Channel,
    cut: Cut,
    buffer: str,
    number: int,
    kernel: TiledKernel,
    tile: str,
) -> list[str]:
    """Start the copies of one tile of an operand."""
    at = package.channels.index(channel)
    is_out = number >= len(kernel.inputs)
    kind = "uint8_t" if is_out else "const uint8_t"
    there = f"({kind} *){_name(number, kernel)} + {tile} * {cut.chunk_bytes}u"
    indent = "    " if is_out else "      "
    if cut.chunks == 1:
        pair = (there, buffer) if is_out else (buffer, there)
        return [f"{indent}dma_start(ctx, {at}u, {pair[0]}, {pair[1]}, {cut.chunk_bytes}u);"]
    buffer, there = f"{buffer} + k * {cut.chunk_bytes}u", f"{there} + k * {cut.stride_bytes}u"
    pair = (there, buffer) if is_out else (buffer, there)
    return [
        f"{indent}for (uint32_t k = 0; k < {cut.chunks}u; k++)",
        f"{indent}  dma_start(ctx, {at}u, {pair[0]}, {pair[1]}, {cut.chunk_bytes}u);",
    ]


def _moved(cut: Cut, number: int, kernel: TiledKernel, *, out: bool) -> list[str]:
    """Gather a tile of an operand in fast memory that is not in one piece, or scatter it."""
    kind = "uint8_t" if out else "const uint8_t"
    there = (
        f"({kind} *){_name(number, kernel)} + tile * {cut.chunk_bytes}u + k * {cut.stride_bytes}u"
    )
    kind = "const uint8_t" if out else "uint8_t"
    buffer = f"({kind} *)work + {cut.offset_bytes}u + k * {cut.chunk_bytes}u"
    to, source = (there, buffer) if out else (buffer, there)
    return [
        f"    for (uint32_t k = 0; k < {cut.chunks}u; k++)",
        f"      memcpy({to}, {source}, {cut.chunk_bytes}u);",
    ]


def _waits(package: Package, kernel: TiledKernel, indent: str, *, tiles_left: int) -> list[str]:
    """Wait until the copies of at most so many tiles are left to be stored."""
    return [
        f"{indent}dma_wait(ctx, {package.channels.index(channel)}u, {tiles_left * copies}u);"
        for channel, copies in kernel.channels.items()
        if channel[0] == kernel.first
    ]


def _given(package: Package, symbol: str, kernel: TiledKernel) -> list[str]:
    """The arguments of the kernel of a tile."""
    count, inputs = len(kernel.cuts), len(kernel.inputs)
    specs = [*kernel.inputs, *kernel.outputs]
    given = []
    for number in package.codes[symbol].arguments:
        if number == count:
            given.append("(uint8_t *)work")
            continue
        const = "const " if number < inputs else ""
        kind, cut = f"{const}{stored_type(specs[number].dtype)}", kernel.cuts[number]
        byte, void = f"{const}uint8_t", f"{const}void"
        if cut is None:
            given.append(f"({kind} *){_name(number, kernel)}")
        elif cut.offset_bytes is None:
            place = f"({byte} *){_name(number, kernel)} + tile * {cut.chunk_bytes}u"
            given.append(f"({kind} *)({void} *)({place})")
        else:
            half = f" + half * {_apart(cut, package)}u" if cut.region else ""
            place = f"({byte} *)work + {cut.offset_bytes}u{half}"
            given.append(f"({kind} *)({void} *)({place})")
    return given
