"""Networks in many sizes, whose kernels a cost model learns from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tvm_xengine.cost_models.corpus.designs.catalogue import DESIGNS, build_design
from tvm_xengine.cost_models.corpus.random_network import random_network
from tvm_xengine.cost_models.dataset.dataset import RANDOM
from tvm_xengine.errors import InvalidDatasetError, UnsupportedModelError
from tvm_xengine.frontends import zoo
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.training.adam import Adam
from tvm_xengine.training.optimizer import Optimizer
from tvm_xengine.training.optimizers import SGD

_BATCHES = (1, 2, 4, 8, 16, 32)
"""Batch sizes: powers of two, as users choose them."""

_SIZE_RATIOS = (0.5, 1.0, 1.5, 2.0)
"""Image sizes relative to a network's usual one."""

_OPTIMIZERS: tuple[Optimizer, ...] = (SGD(), SGD(momentum=0.9), Adam())
"""Updates with no, one and two tensors of state."""


@dataclass(frozen=True)
class Variant:
    """A network in one size.

    Attributes
    ----------
    network
        A name of the zoo or of `DESIGNS`, or `RANDOM`.
    size
        None is the usual size, or, outside the zoo, one that the seed chooses.
    """

    network: str
    batch_size: int
    size: int | None
    num_classes: int
    optimizer: Optimizer
    seed: int

    def __str__(self) -> str:
        return f"{self.network} (batch {self.batch_size}, size {self.size or 'usual'})"

    @property
    def text(self) -> str:
        """All fields, for `of_text`."""
        optimizer = _OPTIMIZERS.index(self.optimizer)
        fields = (self.network, self.batch_size, self.size, self.num_classes, optimizer, self.seed)
        return json.dumps(fields)

    @staticmethod
    def of_text(text: str) -> Variant:
        """The variant whose `text` this is.

        Raises
        ------
        InvalidDatasetError
            When it is none.
        """
        try:
            network, batch_size, size, num_classes, optimizer, seed = json.loads(text)
            chosen = _OPTIMIZERS[optimizer]
            return Variant(network, batch_size, size, num_classes, chosen, seed)
        except (ValueError, TypeError, IndexError) as error:
            raise InvalidDatasetError(f"expected a network of the corpus, found {text}") from error

    @property
    def family(self) -> str:
        """What networks of one kind share: the ResNets are one family."""
        return self.network.rstrip("0123456789")

    def build(self) -> ForwardModel:
        """The forward network."""
        if self.network == RANDOM:
            return random_network(self.seed, self.batch_size)
        if self.network in DESIGNS:
            return build_design(self.network, self.batch_size, self.num_classes, self.seed)
        return zoo.build(
            self.network,
            batch_size=self.batch_size,
            size=self.size,
            num_classes=self.num_classes,
            seed=self.seed,
        )


def variants(networks: tuple[str, ...] | None = None, seed: int = 0) -> Iterator[Variant]:
    """Endless variants, network after network in turn; equal arguments give equal ones.

    Parameters
    ----------
    networks
        Names of the zoo, of `DESIGNS` and `RANDOM`; None means all, with as many random ones as
        others.

    Raises
    ------
    UnsupportedModelError
        When there is no network of a name.
    """
    designed = (*zoo.NETWORKS, *DESIGNS)
    if unknown := sorted({*(networks or ())} - {*designed, RANDOM}):
        raise UnsupportedModelError(
            f"unknown networks {unknown}, there are {RANDOM}, {', '.join(designed)}"
        )
    order = networks or tuple(name for known in designed for name in (known, RANDOM))
    return _endless(order, seed)


def _endless(order: tuple[str, ...], seed: int) -> Iterator[Variant]:
    rng = np.random.default_rng(seed)
    while True:
        for network in order:
            spec = zoo.NETWORKS.get(network)
            usual = None if spec is None else spec.input_shape[-1]
            ratio = float(rng.choice(_SIZE_RATIOS))
            yield Variant(
                network=network,
                batch_size=int(rng.choice(_BATCHES)),
                size=None if usual is None or ratio == 1.0 else max(8, int(usual * ratio)),
                num_classes=int(rng.integers(2, 200)),
                optimizer=_OPTIMIZERS[int(rng.integers(len(_OPTIMIZERS)))],
                seed=int(rng.integers(2**31)),
            )
