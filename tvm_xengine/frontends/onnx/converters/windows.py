"""Max pooling with positions, and columns put back into images."""

from __future__ import annotations

from math import prod

import numpy as np
from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.onnx.node import Converter, OnnxNode, literal
from tvm_xengine.frontends.torch.aten.images import windows as aten


def max_pool(node: OnnxNode) -> relax.Expr | None:
    """The maxima and their places in the whole flattened tensor."""
    if node.output_count == 1:
        return None
    n, c, *space = node.shape()
    rank = len(space)
    if rank not in (2, 3):
        raise UnsupportedModelError(f"places of maxima over {rank} axes; only 2 and 3 are known")
    pads = _listed(node, "pads", [0] * 2 * rank)
    if pads[:rank] != pads[rank:]:
        raise UnsupportedModelError(f"places of maxima with the borders {pads}; they must be even")
    y, places = aten.max_pool_with_places(
        node.builder,
        node.input(0),
        _listed(node, "kernel_shape", []),
        _listed(node, "strides", [1] * rank),
        pads[:rank],
        _listed(node, "dilations", [1] * rank),
        bool(node.integer("ceil_mode", 0)),
    )
    if node.integer("storage_order", 0):
        places = _column_major(node, places, space)
    planes = np.arange(n * c, dtype="int64").reshape(n, c, *[1] * rank) * prod(space)
    return relax.Tuple([y, node.emit(relax.op.add(places, relax.const(planes, "int64")))])


def _column_major(node: OnnxNode, places: relax.Expr, space: list[int]) -> relax.Expr:
    """Places of images stored row by row as places of images stored column by column."""
    rest, made = places, literal(0, "int64")
    for axis in reversed(range(len(space))):
        extent = literal(space[axis], "int64")
        at = relax.op.floor_mod(rest, extent)
        rest = node.emit(relax.op.floor_divide(rest, extent))
        made = node.emit(
            relax.op.add(made, relax.op.multiply(at, literal(prod(space[:axis]), "int64")))
        )
    return made


def max_unpool(node: OnnxNode) -> relax.Expr:
    """Zeros with x at its places of the whole flattened result."""
    n, c, *space = node.shape()
    rank = len(space)
    kernel = _listed(node, "kernel_shape", [])
    strides = _listed(node, "strides", [1] * rank)
    pads = _listed(node, "pads", [0] * 2 * rank)
    natural = [
        (space[k] - 1) * strides[k] - pads[k] - pads[rank + k] + kernel[k] for k in range(rank)
    ]
    whole = [n, c, *natural]
    flat, places = (
        node.emit(relax.op.reshape(node.input(k), (prod(node.shape(k)),))) for k in (0, 1)
    )
    made = aten.max_unpool(node.builder, flat, places, [prod(whole)])
    made = node.emit(relax.op.reshape(made, whole))
    wanted = node.integers(2, "the sizes of the result")
    if wanted is None or wanted == whole:
        return made
    behind = [w for have, want in zip(whole, wanted, strict=True) for w in (0, want - have)]
    if min(behind) < 0:
        raise UnsupportedModelError(f"a result of {wanted}, which is less than {whole}")
    return node.emit(relax.op.nn.pad(made, behind, "constant", 0.0))


def columns_to_image(node: OnnxNode) -> relax.Expr:
    """The sum of columns at their windows' places, over any number of axes."""
    image, block = node.integers(1, "the image's shape"), node.integers(2, "the block's shape")
    if image is None or block is None:
        raise UnsupportedModelError("the shapes of image and block must be given")
    rank = len(image)
    n, columns, _ = node.shape()
    places = _window_places(
        image,
        block,
        _listed(node, "dilations", [1] * rank),
        _listed(node, "pads", [0] * 2 * rank),
        _listed(node, "strides", [1] * rank),
    )
    planes = n * columns // prod(block)
    values = node.emit(relax.op.reshape(node.input(0), (planes, places.size)))
    # One more place takes what lies in the border.
    zeros = node.emit(relax.op.zeros((planes, prod(image) + 1), node.dtype()))
    at = relax.const(np.tile(places.reshape(1, -1), (planes, 1)), "int64")
    made = node.emit(relax.op.scatter_elements(zeros, at, values, 1, "add"))
    inside = node.emit(relax.op.strided_slice(made, [1], [0], [prod(image)]))
    return node.emit(relax.op.reshape(inside, (n, columns // prod(block), *image)))


def _window_places(
    image: list[int], block: list[int], dilations: list[int], pads: list[int], strides: list[int]
) -> np.ndarray:
    """Flat places of the image, shape (places of a window, windows); its size for the border."""
    rank = len(image)
    along = []
    for k in range(rank):
        reach = dilations[k] * (block[k] - 1) + 1
        windows = (image[k] + pads[k] + pads[rank + k] - reach) // strides[k] + 1
        begins = np.arange(windows) * strides[k] - pads[k]
        along.append(np.arange(block[k])[:, None] * dilations[k] + begins)
    flat, outside = np.zeros([1] * 2 * rank, "int64"), np.zeros([1] * 2 * rank, bool)
    for k, at in enumerate(along):
        shape = [1] * 2 * rank
        shape[k], shape[rank + k] = at.shape
        at = at.reshape(shape)
        flat = flat * image[k] + at
        outside = outside | (at < 0) | (at >= image[k])
    return np.where(outside, prod(image), flat).reshape(prod(block), -1)


def _listed(node: OnnxNode, name: str, default: list[int]) -> list[int]:
    return [int(one) for one in node.attributes.get(name, default)]  # type: ignore[attr-defined]


CONVERTERS: dict[str, Converter] = {
    "Col2Im": columns_to_image,
    "MaxPool": max_pool,
    "MaxUnpool": max_unpool,
}
