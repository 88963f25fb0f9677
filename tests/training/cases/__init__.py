"""For every op with a gradient rule: how to draw its attributes, and what PyTorch computes."""

from tests.training.cases import (
    convolution,
    elementwise,
    indexing,
    linear,
    loops,
    matrices,
    movement,
    normalisation,
    pointwise,
    pooling,
    reduction,
    resize,
)
from tests.training.cases.case import DrawCase

FAMILIES: dict[str, dict[str, list[DrawCase]]] = {
    module.__name__.rpartition(".")[2]: module.CASES
    for module in (
        convolution,
        elementwise,
        indexing,
        linear,
        loops,
        matrices,
        movement,
        normalisation,
        pointwise,
        pooling,
        reduction,
        resize,
    )
}
"""Names of ops (without ``relax.``) and functions that draw cases of them, by family."""
