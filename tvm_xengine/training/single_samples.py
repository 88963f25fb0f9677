"""Training over single samples: gradients are added up, and an update is made of their mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tvm
from tvm import relax

from tvm_xengine.checks.names import some
from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.naming_builder import UniqueNames
from tvm_xengine.relax_ir.batch_norms import BATCH_NORMS
from tvm_xengine.relax_ir.constants import lift_constants
from tvm_xengine.relax_ir.forward_ops import ForwardOps
from tvm_xengine.relax_ir.signature import StepSignature
from tvm_xengine.relax_ir.types import Array
from tvm_xengine.scheduling.graph import Role
from tvm_xengine.training.body.assembly import Assembly
from tvm_xengine.training.body.updates import Gradients, Pairs, emit_updates
from tvm_xengine.training.build import prepare
from tvm_xengine.training.emitter import Emitter, dtype_of
from tvm_xengine.training.forward.input_ranges import value_ranges
from tvm_xengine.training.gradients.elements.randomness import draws_random_numbers
from tvm_xengine.training.losses import Dice
from tvm_xengine.training.recipe import Recipe
from tvm_xengine.training.typed_labels import TypedLabels

ACCUMULATE = "accumulate"
APPLY = "apply"
GRADIENT_SCALE = "gradient_scale"


@dataclass(frozen=True)
class SingleSamples:
    """Two functions that together do a training step.

    Attributes
    ----------
    accumulate
        ``accumulate(batch..., state..., sums...) -> (loss..., gradient_weight, new sums...)``; the
        weight is left out where every sample counts one.
    apply
        ``apply(hyper..., gradient_scale, state..., sums...) -> (new state...)``; the scale is one
        over the sum of the weights.
    sums
        For each trained parameter the name of the sum of its gradients.
    constants
        Values of the constants that the functions read, by name.
    """

    accumulate: tvm.IRModule
    apply: tvm.IRModule
    sums: Mapping[str, str]
    constants: Mapping[str, Array]


def build_single_samples(
    model: ForwardModel, recipe: Recipe, trainable: Sequence[str]
) -> SingleSamples:
    """The functions for a model that takes one sample.

    Raises
    ------
    UnsupportedModelError
        If gradients of single samples do not add up to that of a batch: batch norms in training mode,
        dropout, and losses that are no mean over samples.
    """
    source, constants = lift_constants(prepare(model.main, recipe))
    _check_adds_up(source, recipe)
    names = set(trainable)
    readers = source.consumers()
    count = len(model.input_names)
    trained = [p for p in source.params[count:] if p.name in names and p in readers]
    modules = {}
    for function in (ACCUMULATE, APPLY):
        builder = relax.BlockBuilder()
        emitter = Emitter(builder)
        assembly = Assembly(emitter, source, recipe, count, trained, weighs_gradients=True)
        halves = _Halves(emitter, source, recipe, assembly, {**model.constants, **constants})
        modules[function] = halves.function(builder, function)
    return SingleSamples(modules[ACCUMULATE], modules[APPLY], halves.sums, constants)


def _check_adds_up(source: ForwardOps, recipe: Recipe) -> None:
    norms = [op.name for op in source.ops if op.op in BATCH_NORMS and bool(op.call.attrs.training)]
    if norms:
        raise UnsupportedModelError(
            f"batch norms in training mode use the statistics of a whole batch ({some(norms)}), so single"
            " samples cannot be accumulated; train with --eval-mode, which keeps their statistics"
        )
    if source.writes:
        written = some(param.name for param, _ in source.writes)
        raise UnsupportedModelError(
            f"the model writes buffers of its own ({written}), which may depend on the whole batch, so"
            " single samples cannot be accumulated; train with --eval-mode, which keeps them"
        )
    if draws_random_numbers(source):
        raise UnsupportedModelError(
            "dropout draws other numbers for single samples than for a batch, so they cannot be"
            " accumulated; train with --eval-mode, which drops nothing"
        )
    loss = recipe.loss.loss if isinstance(recipe.loss, TypedLabels) else recipe.loss
    if isinstance(loss, Dice):
        raise UnsupportedModelError(
            "the dice loss of a batch is no mean over its samples: they cannot be accumulated"
        )


class _Halves:
    """Assembles one of the two functions inside an open function."""

    def __init__(
        self,
        emitter: Emitter,
        source: ForwardOps,
        recipe: Recipe,
        assembly: Assembly,
        constants: Mapping[str, Array],
    ) -> None:
        self._emitter = emitter
        self._source = source
        self._recipe = recipe
        self._assembly = assembly
        self._constants = constants
        names = UniqueNames()
        for var, _ in assembly.params:
            names.fresh(var.name)
        trained = assembly.declared.trained
        self._sums = {p: relax.Var(names.fresh(f"{p.name}_grad_sum"), p.ty) for p in trained}
        self._scale = relax.Var(names.fresh(GRADIENT_SCALE), relax.TensorType((), "float32"))
        assembly.params += [(var, Role.OPTIMIZER_STATE) for var in self._sums.values()]
        assembly.params.append((self._scale, Role.HYPER))
        for var in (*self._sums.values(), self._scale):
            emitter.reserve(var.name)

    @property
    def sums(self) -> dict[str, str]:
        """For each trained parameter the name of the sum of its gradients."""
        return {param.name: var.name for param, var in self._sums.items()}

    def function(self, builder: relax.BlockBuilder, name: str) -> tvm.IRModule:
        """A module with the function `name`."""
        with builder.function(name):
            with builder.dataflow():
                results, replaced = self._accumulated() if name == ACCUMULATE else self._applied()
                fields = [*results.values(), *(new for _, new in replaced)]
                output = builder.emit_output(relax.Tuple(fields), "step_results")
            order = [param for param, _ in self._assembly.params]
            builder.emit_func_output(output, params=order)
        mod = relax.transform.DeadCodeElimination([name])(builder.get())
        func = _without_unread(mod[name])
        kept = {param.name for param in func.params}
        roles = [(var, role) for var, role in self._assembly.params if var.name in kept]
        position = {var.name: at for at, (var, _) in enumerate(roles)}
        ranges = value_ranges(
            self._source,
            self._assembly.declared.inputs,
            self._recipe.loss,
            self._assembly.labels,
            self._constants,
        )
        signature = StepSignature(
            roles=tuple(role for _, role in roles),
            num_results=len(results),
            results=tuple(results),
            updates=tuple(position[old.name] for old, _ in replaced),
            ranges=ranges if name == ACCUMULATE else {},
        )
        mod[name] = signature.write(func.with_attr("global_symbol", name))
        return mod

    def _accumulated(self) -> tuple[dict[str, relax.Expr], Pairs]:
        results, _, gradients = self._assembly.whole_batch()
        pairs = []
        for param, gradient in gradients:
            total = self._sums[param]
            summed = relax.op.add(total, gradient)
            pairs.append((total, self._emitter.bind(summed, f"{param.name}_grad_summed")))
        return results, self._assembly.in_order(pairs)

    def _applied(self) -> tuple[dict[str, relax.Expr], Pairs]:
        recipe, declared = self._recipe, self._assembly.declared
        scales_late = recipe.max_gradient_value is None and recipe.max_gradient_norm is None
        if scales_late and recipe.loss_scale == 1:
            sums = iter(self._sums.items())
            pairs = emit_updates(self._emitter, recipe, declared, sums, [self._scale])
        else:
            pairs = emit_updates(self._emitter, recipe, declared, self._means())
        return {}, self._assembly.in_order([*pairs, *self._assembly.next_step()])

    def _means(self) -> Gradients:
        for param, total in self._sums.items():
            scale = relax.op.astype(self._scale, dtype_of(total))
            mean = relax.op.multiply(total, scale)
            yield param, self._emitter.bind(mean, f"{param.name}_grad")


def _without_unread(func: relax.Function) -> relax.Function:
    """The function without the parameters that its body does not read."""
    read = set(relax.analysis.free_vars(func.body))
    params = [param for param in func.params if param in read]
    return relax.Function(params, func.body, func.ret_ty, func.is_pure, func.attrs)
