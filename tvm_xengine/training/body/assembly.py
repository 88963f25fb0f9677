"""Assembly of a training step inside an open function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvm import relax

from tvm_xengine.kernels.te.updates.optimizer import advance_step, copied
from tvm_xengine.relax_ir.forward_ops import ForwardOps
from tvm_xengine.training.body.declaration import declare
from tvm_xengine.training.body.updates import Gradients, Pairs, emit_updates
from tvm_xengine.training.differentiate import Randomness, Tape, emit_forward
from tvm_xengine.training.emitter import Emitter, dtype_of, shape_of
from tvm_xengine.training.losses import EmittedLoss
from tvm_xengine.training.recipe import Recipe

GRADIENT_WEIGHT = "gradient_weight"


class Assembly:
    """Assembles a training step inside an open function.

    Parameters
    ----------
    weighs_gradients
        Whether gradients are those of the loss times its weight, which is then a result.
    """

    def __init__(
        self,
        emitter: Emitter,
        source: ForwardOps,
        recipe: Recipe,
        num_inputs: int,
        trained: Sequence[relax.Var],
        *,
        weighs_gradients: bool = False,
    ) -> None:
        self._emitter = emitter
        self._source = source
        self._recipe = recipe
        self._weighs_gradients = weighs_gradients
        self.declared = declare(source, recipe, num_inputs, trained)
        self.params = self.declared.params(source)
        for var, _ in self.params:
            emitter.reserve(var.name)

    @property
    def slots(self) -> dict[str, dict[str, str]]:
        """For each trained parameter, the names of its optimizer's state tensors by slot."""
        return {
            param.name: {slot: var.name for slot, var in slots.items()}
            for param, slots in self.declared.slots.items()
        }

    @property
    def labels(self) -> str | None:
        """Name of the labels; None where the model brings its own loss."""
        return None if self.declared.labels is None else self.declared.labels.name

    @property
    def origins(self) -> dict[str, tuple[str, ...]]:
        """For gradients of parameters that several ops read, the op whose gradient each one is."""
        return {name: (op,) for name, op in self._emitter.origins.items()}

    def emit(self) -> tuple[dict[str, relax.Expr], Pairs]:
        """Emit the step; returns its results by name, and pairs (old state, new state)."""
        if self._recipe.micro_batches == 1:
            results, replaced, gradients = self.whole_batch()
        else:
            results, replaced, gradients = self._micro_batches()
        updated = emit_updates(self._emitter, self._recipe, self.declared, gradients)
        return results, self.in_order([*replaced.items(), *updated, *self.next_step()])

    def next_step(self) -> Pairs:
        """The number of steps, advanced, where there is one."""
        step = self.declared.step
        return (
            [] if step is None else [(step, self._emitter.call(advance_step, [step], "next_step"))]
        )

    def in_order(self, pairs: Pairs) -> Pairs:
        """Pairs of old and new state in the order of the parameters."""
        order = {var: position for position, (var, _) in enumerate(self.params)}
        return sorted(pairs, key=lambda pair: order[pair[0]])

    def whole_batch(
        self,
    ) -> tuple[dict[str, relax.Expr], dict[relax.Var, relax.Expr], Gradients]:
        """Results, new running statistics, and gradients, whose ops are emitted as they are drawn."""
        batch = {param: self.declared.values[param] for param in self.declared.inputs}
        return self._pass(batch, self.declared.labels, {}, 0)

    def _pass(
        self,
        batch: Mapping[relax.Var, relax.Expr],
        labels: relax.Expr | None,
        replaced: Mapping[relax.Var, relax.Expr],
        part: int,
    ) -> tuple[dict[str, relax.Expr], dict[relax.Var, relax.Expr], Gradients]:
        """Forward and loss of one (micro) batch; the backward ops come as they are drawn."""
        declared = self.declared
        state = {param: replaced.get(var, var) for param, var in declared.values.items()}
        randomness = None
        if declared.seed is not None and declared.step is not None:
            first_op = part * len(self._source.ops)
            randomness = Randomness(declared.seed, declared.step, first_op)
        tape = emit_forward(
            self._emitter, self._source, {**state, **batch}, list(declared.trained), randomness
        )
        loss: EmittedLoss = self._recipe.loss.emit(self._emitter, tape.outputs[0], labels)
        owner = {value: declared.values[param] for param, value in state.items()}
        now = dict(replaced)
        for old, new in tape.updates:  # a norm that is called twice goes on with its last update
            if old in owner:  # statistics that the model computes itself are no state
                owner[new] = owner[old]
                now[owner[old]] = new
        taken = {*state.values(), *loss.results.values(), *(new for _, new in tape.updates)}
        now |= self._written(tape, taken)

        def gradients() -> Gradients:
            yield from tape.pull_back(self._emitter, {0: self._loss_gradient(loss)})

        weight = {} if loss.weight is None else {GRADIENT_WEIGHT: loss.weight}
        results = {**loss.results, **weight} if self._weighs_gradients else loss.results
        return results, now, gradients()

    def _written(self, tape: Tape, taken: set[relax.Expr]) -> dict[relax.Var, relax.Expr]:
        """New values of the buffers that the model writes, each a tensor of its own."""
        written: dict[relax.Var, relax.Expr] = {}
        for param, new in tape.writes:
            if new in taken:  # another tensor as it is, such as the batch
                new = self._emitter.call(copied, [new], f"{param.name}_written")
            taken.add(new)
            written[self.declared.values[param]] = new
        return written

    def _loss_gradient(self, loss: EmittedLoss) -> relax.Expr:
        """The gradient of the loss, with all factors that it is multiplied by before the backward."""
        gradient = loss.gradient()
        factor = self._recipe.loss_scale / self._recipe.micro_batches
        if factor != 1:
            scaled = relax.op.multiply(gradient, relax.const(factor, dtype_of(gradient)))
            gradient = self._emitter.bind(scaled, "scaled_loss_backward")
        if self._weighs_gradients and loss.weight is not None:
            weighed = relax.op.multiply(gradient, loss.weight)
            gradient = self._emitter.bind(weighed, "weighed_loss_backward")
        return gradient

    def _micro_batches(
        self,
    ) -> tuple[dict[str, relax.Expr], dict[relax.Var, relax.Expr], Gradients]:
        """Forward and backward of each part of the batch in turn, gradients added up."""
        declared, parts = self.declared, self._recipe.micro_batches
        totals: dict[relax.Var, relax.Expr] = {}
        results: dict[str, relax.Expr] = {}
        replaced: dict[relax.Var, relax.Expr] = {}
        for part in range(parts):
            batch = {param: self._part(declared.values[param], part) for param in declared.inputs}
            labels = None if declared.labels is None else self._part(declared.labels, part)
            made, replaced, gradients = self._pass(batch, labels, replaced, part)
            for name, result in made.items():
                results[name] = self._sum(results.get(name), result, name)
            for param, gradient in gradients:
                totals[param] = self._sum(totals.get(param), gradient, f"{param.name}_grad_sum")
        share = relax.const(1 / parts, dtype_of(results["loss"]))
        results["loss"] = self._emitter.bind(relax.op.multiply(results["loss"], share), "loss_mean")
        return results, replaced, iter(totals.items())

    def _part(self, value: relax.Var, part: int) -> relax.Expr:
        length = shape_of(value)[0] // self._recipe.micro_batches
        begin, end = part * length, (part + 1) * length
        return self._emitter.bind(
            relax.op.strided_slice(value, [0], [begin], [end]), f"{value.name}_part"
        )

    def _sum(self, total: relax.Expr | None, value: relax.Expr, name: str) -> relax.Expr:
        return value if total is None else self._emitter.bind(relax.op.add(total, value), name)
