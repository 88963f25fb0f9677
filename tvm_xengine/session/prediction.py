"""The model of a step in evaluation mode, with the parameters that the step has trained so far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm_xengine.compiler.forward import build_forward
from tvm_xengine.relax_ir.types import Array
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.session.stages.lowered import Lowered
from tvm_xengine.state.handed_over import handed_over, shared
from tvm_xengine.state.model_state import values_of
from tvm_xengine.training.forward.evaluation import evaluation_module, result_names


class Prediction:
    """The compiled forward function of a step's model, with an arena and parameters of its own."""

    def __init__(self, lowered: Lowered) -> None:
        self._source = lowered.training.source
        self._names = result_names(self._source.outputs)
        self._executable = build_forward(
            evaluation_module(self._source.evaluation),
            len(self._source.inputs),
            lowered.platform,
            results=self._names,
            store=lowered.stores.kernels,
            rank=0 if lowered.step.ranks is None else lowered.step.ranks.rank,
        )
        self.is_current = False

    def write(self, state: Mapping[str, Array]) -> None:
        """Take over the tensors of the model, by their names."""
        wanted = self._executable.names(Role.PARAMETER)
        self._executable.write(values_of(self._source.evaluation, state, wanted))
        self.is_current = True

    def __call__(self, inputs: Mapping[str, Array], *, copy: bool) -> Any:
        """What the model returns, in its own structure; as views of the arena without `copy`."""
        forward, source = self._executable, self._source
        forward.write(forward.check(inputs))
        forward.run()
        made = (
            handed_over(source, forward.read_results(self._names))
            if copy
            else shared(source, forward.result_views)
        )
        return source.restore([made[name] for name in self._names])
