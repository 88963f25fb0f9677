"""Assembly of a training step inside an open function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.naming_builder import UniqueNames
from tvm_xengine.kernels.te.optimizer import (
    advance_step,
    clipped_value,
    clipping_scale,
    copied,
    squared_norm,
)
from tvm_xengine.relax_ir.batch_norms import updated_statistics
from tvm_xengine.relax_ir.forward_ops import ForwardOps
from tvm_xengine.relax_ir.types import static_shape
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.training.differentiate import Randomness, Tape, emit_forward
from tvm_xengine.training.emitter import Emitter, dtype_of, shape_of
from tvm_xengine.training.gradients.elements.randomness import draws_random_numbers
from tvm_xengine.training.losses import EmittedLoss
from tvm_xengine.training.optimizers import Rate, Update
from tvm_xengine.training.recipe import Recipe

LABELS = "labels"
SEED = "seed"
STEP = "step"
GRADIENT_WEIGHT = "gradient_weight"


def learning_rate_name(group: int) -> str:
    """Name of the learning rate of a group of parameters; group 0 has all parameters without a group."""
    return f"lr_{group}" if group else "lr"


class Assembly:
    """Assembles a training step inside an open function."""

    weighs_gradients = False
    """Whether gradients are those of the loss times its weight, which is then a result."""

    def __init__(
        self,
        emitter: Emitter,
        source: ForwardOps,
        recipe: Recipe,
        num_inputs: int,
        trained: Sequence[relax.Var],
    ) -> None:
        self._emitter = emitter
        self._source = source
        self._recipe = recipe
        self._trained = list(trained)
        self._inputs = list(source.params[:num_inputs])
        self._declare()

    def _declare(self) -> None:
        """The parameters of the step: batch, learning rate, state."""
        recipe = self._recipe
        names = UniqueNames()
        for param in self._source.params:
            names.fresh(param.name)
        labels = recipe.loss.labels_type(self._source.outputs[0].ty)
        self._labels = (
            None if labels is None else relax.Var(names.fresh(LABELS), self._widened(labels))
        )
        self._group = {param: recipe.group_of(param.name) for param in self._trained}
        self._lr = {
            group: relax.Var(learning_rate_name(group), relax.TensorType((), "float32"))
            for group in sorted(set(self._group.values()))
        }
        used = [recipe.optimizers[group] for group in self._lr]
        self._values = {param: relax.Var(param.name, param.ty) for param in self._source.params}
        for param in self._inputs:
            self._values[param] = relax.Var(param.name, self._widened(param.ty))
        self._slots = {
            param: {
                slot: relax.Var(names.fresh(f"{param.name}_{slot}"), param.ty)
                for slot in recipe.optimizers[group].slots
            }
            for param, group in self._group.items()
        }
        draws = draws_random_numbers(self._source)
        self._step = (
            relax.Var(STEP, relax.TensorType((), "int32"))
            if draws or any(optimizer.needs_step for optimizer in used)
            else None
        )
        self._seed = relax.Var(SEED, relax.TensorType((), "int32")) if draws else None

        written = {param for param, _ in self._source.writes}
        statistics = updated_statistics(self._source) | written
        readers = self._source.consumers()
        state = [param for param in self._source.params if param not in self._inputs]
        read = [param for param in state if param in readers]
        batch = [self._values[param] for param in self._inputs]
        if self._labels is not None:
            batch.append(self._labels)
        counters = [var for var in (self._step, self._seed) if var is not None]
        self.params: list[tuple[relax.Var, Role]] = [
            *((var, Role.BATCH) for var in batch),
            *((lr, Role.HYPER) for lr in self._lr.values()),
            *((self._values[param], Role.PARAMETER) for param in read if param in self._trained),
            *(
                (var, Role.OPTIMIZER_STATE)
                for slots in self._slots.values()
                for var in slots.values()
            ),
            *((var, Role.OPTIMIZER_STATE) for var in counters),
            *((self._values[param], Role.STATISTIC) for param in read if param in statistics),
            *(
                (self._values[param], Role.CONSTANT)
                for param in read
                if param not in statistics and param not in self._trained
            ),
        ]
        for var, _ in self.params:
            self._emitter.reserve(var.name)

    @property
    def slots(self) -> dict[str, dict[str, str]]:
        """For each trained parameter, the names of its optimizer's state tensors by slot."""
        return {
            param.name: {slot: var.name for slot, var in slots.items()}
            for param, slots in self._slots.items()
        }

    @property
    def labels(self) -> str | None:
        """Name of the labels; None where the model brings its own loss."""
        return None if self._labels is None else self._labels.name

    def _widened(self, ty: relax.TensorType) -> relax.TensorType:
        """The type of all micro-batches of one step together."""
        if self._recipe.micro_batches == 1:
            return ty
        if not ty.ndim:
            raise UnsupportedModelError(
                "micro-batches are cut along the first axis, but an input of the model is a scalar"
            )
        leading, *rest = static_shape(ty)
        return relax.TensorType([leading * self._recipe.micro_batches, *rest], ty.dtype)

    def emit(self) -> tuple[dict[str, relax.Expr], list[tuple[relax.Var, relax.Expr]]]:
        """Emit the step; returns its results by name, and pairs (old state, new state)."""
        if self._recipe.micro_batches == 1:
            batch = {param: self._values[param] for param in self._inputs}
            results, replaced, gradients = self._pass(batch, self._labels, {}, 0)
            updated = self._updates(gradients)
        else:
            results, replaced, summed = self._micro_batches()
            updated = self._updates(iter(summed))
        pairs = [*replaced.items(), *updated]
        if self._step is not None:
            pairs.append((self._step, self._next_step()))
        return results, self._in_order(pairs)

    def _next_step(self) -> relax.Expr:
        return self._emitter.call(advance_step, [self._step], "next_step")

    def _in_order(
        self, pairs: list[tuple[relax.Var, relax.Expr]]
    ) -> list[tuple[relax.Var, relax.Expr]]:
        """Pairs of old and new state in the order of the parameters."""
        order = {var: position for position, (var, _) in enumerate(self.params)}
        return sorted(pairs, key=lambda pair: order[pair[0]])

    def _pass(
        self,
        batch: Mapping[relax.Var, relax.Expr],
        labels: relax.Expr | None,
        replaced: Mapping[relax.Var, relax.Expr],
        part: int,
    ) -> tuple[
        dict[str, relax.Expr],
        dict[relax.Var, relax.Expr],
        Iterator[tuple[relax.Var, relax.Expr]],
    ]:
        """Forward and loss of one (micro) batch; the backward ops come as they are drawn."""
        state = {param: replaced.get(var, var) for param, var in self._values.items()}
        randomness = None
        if self._seed is not None and self._step is not None:
            first_op = part * len(self._source.ops)
            randomness = Randomness(self._seed, self._step, first_op)
        tape = emit_forward(
            self._emitter, self._source, {**state, **batch}, self._trained, randomness
        )
        loss: EmittedLoss = self._recipe.loss.emit(self._emitter, tape.outputs[0], labels)
        owner = {value: self._values[param] for param, value in state.items()}
        now = dict(replaced)
        for old, new in tape.updates:  # a norm that is called twice goes on with its last update
            owner[new] = owner[old]
            now[owner[old]] = new
        taken = {*state.values(), *loss.results.values(), *(new for _, new in tape.updates)}
        now |= self._written(tape, taken)

        def gradients() -> Iterator[tuple[relax.Var, relax.Expr]]:
            seed = loss.gradient()
            factor = self._loss_scale / self._recipe.micro_batches
            if factor != 1:
                share = relax.const(factor, dtype_of(seed))
                seed = self._emitter.bind(relax.op.multiply(seed, share), "scaled_loss_backward")
            if self.weighs_gradients and loss.weight is not None:
                weighed = relax.op.multiply(seed, loss.weight)
                seed = self._emitter.bind(weighed, "weighed_loss_backward")
            yield from tape.pull_back(self._emitter, {0: seed})

        weight = {} if loss.weight is None else {GRADIENT_WEIGHT: loss.weight}
        results = {**loss.results, **weight} if self.weighs_gradients else loss.results
        return results, now, gradients()

    def _written(self, tape: Tape, taken: set[relax.Expr]) -> dict[relax.Var, relax.Expr]:
        """New values of the buffers that the model writes, each a tensor of its own."""
        written: dict[relax.Var, relax.Expr] = {}
        for param, new in tape.writes:
            if new in taken:  # another tensor as it is, such as the batch
                new = self._emitter.call(copied, [new], f"{param.name}_written")
            taken.add(new)
            written[self._values[param]] = new
        return written

    def _micro_batches(
        self,
    ) -> tuple[
        dict[str, relax.Expr],
        dict[relax.Var, relax.Expr],
        list[tuple[relax.Var, relax.Expr]],
    ]:
        """Forward and backward of each part of the batch in turn, gradients added up."""
        parts = self._recipe.micro_batches
        totals: dict[relax.Var, relax.Expr] = {}
        results: dict[str, relax.Expr] = {}
        replaced: dict[relax.Var, relax.Expr] = {}
        for part in range(parts):
            batch = {param: self._part(self._values[param], part) for param in self._inputs}
            labels = None if self._labels is None else self._part(self._labels, part)
            made, replaced, gradients = self._pass(batch, labels, replaced, part)
            for name, result in made.items():
                results[name] = self._sum(results.get(name), result, name)
            for param, gradient in gradients:
                totals[param] = self._sum(totals.get(param), gradient, f"{param.name}_grad_sum")
        share = relax.const(1 / parts, dtype_of(results["loss"]))
        results["loss"] = self._emitter.bind(relax.op.multiply(results["loss"], share), "loss_mean")
        return results, replaced, list(totals.items())

    def _part(self, value: relax.Var, part: int) -> relax.Expr:
        length = shape_of(value)[0] // self._recipe.micro_batches
        begin, end = part * length, (part + 1) * length
        return self._emitter.bind(
            relax.op.strided_slice(value, [0], [begin], [end]), f"{value.name}_part"
        )

    def _sum(self, total: relax.Expr | None, value: relax.Expr, name: str) -> relax.Expr:
        return value if total is None else self._emitter.bind(relax.op.add(total, value), name)

    @property
    def _loss_scale(self) -> float:
        return 1.0 if self._recipe.precision is None else self._recipe.precision.loss_scale

    def _unscaled(
        self, gradients: Iterator[tuple[relax.Var, relax.Expr]]
    ) -> Iterator[tuple[relax.Var, relax.Expr]]:
        for param, gradient in gradients:
            back = relax.const(1 / self._loss_scale, dtype_of(gradient))
            unscaled = relax.op.multiply(gradient, back)
            yield param, self._emitter.bind(unscaled, f"{param.name}_grad_unscaled")

    def _limited(
        self, gradients: Iterator[tuple[relax.Var, relax.Expr]], limit: float
    ) -> Iterator[tuple[relax.Var, relax.Expr]]:
        for param, gradient in gradients:
            clipped = self._emitter.call(
                clipped_value, [gradient], f"{param.name}_grad_clipped", limit=limit
            )
            yield param, clipped

    def _updates(
        self,
        gradients: Iterator[tuple[relax.Var, relax.Expr]],
        factors_of_all: Sequence[relax.Expr] = (),
    ) -> list[tuple[relax.Var, relax.Expr]]:
        """One update per parameter, each as soon as its gradient is there unless all are clipped."""
        scale = list(factors_of_all)
        if self._loss_scale != 1:
            gradients = self._unscaled(gradients)
        if self._recipe.max_gradient_value is not None:
            gradients = self._limited(gradients, self._recipe.max_gradient_value)
        if self._recipe.max_gradient_norm is not None:
            gradients = iter(collected := list(gradients))
            norms = [
                self._emitter.call(squared_norm, [gradient], f"{param.name}_squared_norm")
                for param, gradient in collected
            ]
            limit = self._recipe.max_gradient_norm
            scale = [self._emitter.call(clipping_scale, norms, "clipping_scale", max_norm=limit)]
        replaced: list[tuple[relax.Var, relax.Expr]] = []
        factors: dict[tuple[int, str], tuple[relax.Expr, ...]] = {}
        for param, gradient in gradients:
            slots, group, dtype = self._slots[param], self._group[param], dtype_of(gradient)
            optimizer, lr = self._recipe.optimizers[group], self._lr[group]
            if (group, dtype) not in factors:
                rate = Rate(lr, self._step)
                factors[group, dtype] = optimizer.factors(self._emitter, rate, dtype)
            update = Update(
                param.name,
                self._values[param],
                gradient,
                slots,
                lr,
                factors[group, dtype],
                scale,
            )
            new = optimizer.emit(self._emitter, update)
            replaced += zip([self._values[param], *slots.values()], new, strict=True)
        return replaced
