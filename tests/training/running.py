"""Running training steps on the Relax VM, without any scheduling."""

from collections.abc import Mapping

import numpy as np
import tvm

from tests.vm import reference_vm
from tvm_xengine.relax_ir.signature import TRAIN_STEP
from tvm_xengine.training.step import TrainingStep


class ReferenceRun:
    """A compiled step whose state lives in numpy arrays."""

    def __init__(self, step: TrainingStep) -> None:
        self.step = step
        self._function = reference_vm(step.mod)[TRAIN_STEP]
        self.state = dict(step.initial_state)

    def __call__(self, *batch: np.ndarray, lr: float = 0.1) -> Mapping[str, float]:
        """Take one step; returns the leading results by name."""
        values = [*batch, np.array(lr, "float32"), *self.state.values()]
        made = [t.numpy() for t in self._function(*(tvm.runtime.tensor(v) for v in values))]
        names = self.step.result_names
        self.state.update(zip(self.step.updated_names, made[len(names) :], strict=True))
        return {name: float(value) for name, value in zip(names, made, strict=False)}

    def gradients(self) -> dict[str, np.ndarray]:
        """Gradients of the first step, which momentum keeps as they are."""
        return {
            name.removesuffix("_velocity"): value
            for name, value in self.state.items()
            if name.endswith("_velocity")
        }
