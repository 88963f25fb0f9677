"""What the zoo knows about a network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import relax

from tvm_xengine.frontends.zoo.layers import Layers


@dataclass(frozen=True)
class NetworkSpec:
    """A network of the zoo.

    Attributes
    ----------
    body
        Emits the layers behind an image; returns the logits.
    channels, image_size
        The images it usually reads.
    """

    body: Callable[[Layers, relax.Expr, int], relax.Expr]
    channels: int
    image_size: int
