"""``python -m benchmarks.training.compile_step NETWORK STORE``: compile a step for two devices.

Prints as JSON how long each part took in this process, whose imports are counted apart.
"""

from __future__ import annotations

import json
import sys
import time

start_s = time.perf_counter()

from pathlib import Path  # noqa: E402

from tvm_xengine.compiler.lower import lower_step  # noqa: E402
from tvm_xengine.frontends.load import load_model  # noqa: E402
from tvm_xengine.kernels.store.kernel_store import KernelStore  # noqa: E402
from tvm_xengine.scheduling.platform import Device, Platform  # noqa: E402
from tvm_xengine.training.build import build_training_step  # noqa: E402

BATCH = 8
TWO_DEVICES = Platform(
    (
        Device("cpu", "llvm -mcpu=native -num-cores=native", kernels=("auto",)),
        Device("cpu_generic", "llvm -mcpu=x86-64"),
    )
)


def main(network: str, store: Path) -> None:
    """Lower the step and load every kernel of both devices, as a first run does."""
    clock = [start_s, time.perf_counter()]

    def lap() -> float:
        clock.append(time.perf_counter())
        return clock[-1] - clock[-2]

    found = {"imports_s": clock[1] - clock[0]}
    training = build_training_step(load_model(network, batch_size=BATCH))
    found["training_s"] = lap()
    lowered = lower_step(training.mod, TWO_DEVICES)
    found["lowering_s"] = lap()
    kernels = lowered.kernels.values()
    loaded = KernelStore(store).load(kernels)
    found["kernels_s"] = lap()
    found["kernels"] = len(loaded)
    found["of_library"] = len({kernel.symbol for kernel in kernels if kernel.library is not None})
    found["total_s"] = clock[-1] - clock[0]
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
