"""The fixed kernels that calibrate a machine: streams, a product, a call, and those of a small network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest

from tvm import te
from tvm.target import Target

from tvm_xengine.cost_models.corpus.variants import Variant
from tvm_xengine.cost_models.dataset.collect import training_kernels
from tvm_xengine.cost_models.dataset.dataset import RANDOM
from tvm_xengine.cost_models.features.hardware import ASSUMED_CACHES_BYTES
from tvm_xengine.cost_models.measure.machine import Machine
from tvm_xengine.errors import InvalidPlatformError
from tvm_xengine.kernels.device_kernel import DeviceKernel, distinct_kernels, prepare_kernel
from tvm_xengine.kernels.sources import AUTO, available_sources
from tvm_xengine.training.optimizers import SGD

_FLOAT_BYTES = 4
"""Of a float32, the type of all that is swept."""

_STREAM_SHARE = 0.5
"""Of a cache that a stream's two vectors take: some is left for others."""

_LEAST_MEMORY_BYTES, _MOST_MEMORY_BYTES = 64 << 20, 256 << 20
"""Two vectors that no second level cache holds, and that any machine has room for. A shared third
level of hundreds of megabytes may hold them."""

_SIDE = 256
"""Of the matrices of the product, which take 768 KiB."""

_SEEDS = range(9001, 9011)
_NETWORKS = (
    Variant("lenet", 4, 28, 10, SGD(momentum=0.9), 1),
    Variant("gpt_nano", 2, 32, 64, SGD(momentum=0.9), 1),
    *(Variant(RANDOM, 4, None, 10, SGD(momentum=0.9), seed) for seed in _SEEDS),
)
"""Convolutions, poolings, products, norms, softmax and updates, forward and backward: library calls and
generated code. Their sizes and seeds are in no labels that ship; ten random networks have about as many
kernels as three minutes time."""

CALL, PRODUCT = "call", "product"


@dataclass(frozen=True)
class Sweep:
    """Kernels to time.

    Attributes
    ----------
    probes
        Kernels that measure a rate, by what it is: `CALL`, `PRODUCT`, or the level of the caches that
        a stream keeps to, such as ``L1``.
    samples
        Kernels of networks, which show how far predictions are off here.
    network
        Number of the network that each of these was first met in, by its symbol.
    """

    probes: dict[str, DeviceKernel]
    samples: tuple[DeviceKernel, ...]
    network: Mapping[str, int]

    @property
    def kernels(self) -> tuple[DeviceKernel, ...]:
        """All of them, the probes first."""
        return (*self.probes.values(), *self.samples)


def sweep_of(target: Target, machine: Machine) -> Sweep:
    """The kernels for a target on a machine."""
    caches = (
        known or assumed
        for known, assumed in zip(machine.caches_bytes, ASSUMED_CACHES_BYTES, strict=True)
    )
    first, second, third = caches
    memory = min(_MOST_MEMORY_BYTES, max(_LEAST_MEMORY_BYTES, 2 * third))
    sizes = {"L1": first * _STREAM_SHARE, "L2": second * _STREAM_SHARE, "memory": memory}
    if third * _STREAM_SHARE < memory / 4:
        sizes["L3"] = third * _STREAM_SHARE
    probes = {level: _stream(int(size), target) for level, size in sizes.items()}
    probes[PRODUCT] = _product(target)
    probes[CALL] = _stream(2 * _FLOAT_BYTES, target)
    return Sweep(probes, *_samples(target))


def _samples(target: Target) -> tuple[tuple[DeviceKernel, ...], Mapping[str, int]]:
    try:
        libraries = available_sources((AUTO,), target, str(target))
    except InvalidPlatformError:
        libraries = ()
    devices = [(target, (name,)) for name in dict.fromkeys((*libraries, "tir"))]
    by_network = [training_kernels(variant, devices) for variant in _NETWORKS]
    # In turn, so that a sweep that ends early has kernels of all of them.
    in_turn = (kernel for each in zip_longest(*by_network) for kernel in each if kernel is not None)
    network: dict[str, int] = {}
    for number, kernels in enumerate(by_network):
        for kernel in kernels:
            network.setdefault(kernel.symbol, number)
    return tuple(distinct_kernels(in_turn)), network


def _stream(size_bytes: int, target: Target) -> DeviceKernel:
    """Reads half of so many bytes and writes the other half."""
    x = te.placeholder((max(1, size_bytes // (2 * _FLOAT_BYTES)),), name="x")
    func = te.create_prim_func([x, te.compute(x.shape, lambda i: x[i] + 1.0, name="y")])
    return prepare_kernel(func, target, f"stream{size_bytes}")


def _product(target: Target) -> DeviceKernel:
    a, b = (te.placeholder((_SIDE, _SIDE), name=name) for name in "ab")
    k = te.reduce_axis((0, _SIDE), name="k")
    product = te.compute((_SIDE, _SIDE), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    return prepare_kernel(te.create_prim_func([a, b, product]), target, "product")
