"""The machine that kernels are measured on, as the system describes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tvm_xengine.kernels.digest import digest

CacheSizes = tuple[int | None, int | None, int | None]


@dataclass(frozen=True)
class Machine:
    """What a run time depends on in addition to the kernel and its target.

    What the system does not say is None.

    Attributes
    ----------
    processor
        Its name as the system gives it; for boards behind RPC their address.
    llvm_cpu
        LLVM's name of the processor, such as ``znver4``; empty for boards.
    architecture
        Such as ``x86_64``.
    vector_extensions
        LLVM's names, sorted.
    caches_bytes
        Sizes of the first, second and third level data cache that one core sees.
    frequency_mhz
        The highest that the processor is said to reach.
    cores
        Number that the process may use.
    threads
        Number of threads in the pool of TVM's runtime.
    system
        Name of the operating system.
    tvm, llvm
        Versions.
    gpu
        Name of the GPU that the kernels run on; None for a processor.
    """

    processor: str | None
    llvm_cpu: str
    architecture: str | None
    vector_extensions: tuple[str, ...]
    caches_bytes: CacheSizes
    frequency_mhz: float | None
    cores: int | None
    threads: int | None
    system: str | None
    tvm: str
    llvm: str
    gpu: str | None = None

    @property
    def key(self) -> str:
        """A short key that equal machines share."""
        return digest({"machine": json.dumps(asdict(self), sort_keys=True)})


def machine_from_json(document: Mapping[str, Any]) -> Machine:
    """The machine that ``asdict`` made a JSON object of."""
    first, second, third = document["caches_bytes"]
    return Machine(
        **{
            **document,
            "vector_extensions": tuple(map(str, document["vector_extensions"])),
            "caches_bytes": (first, second, third),
        }
    )
