"""A forward model and its gradient, for given gradients of its outputs, as one compiled function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from tests.vm import computed
from tvm_xengine.frontends.model import Array, ForwardModel
from tvm_xengine.passes.lowering.lift_constants import CONSTANTS_ATTR
from tvm_xengine.passes.lowering.lower_to_kernels import LowerToKernels
from tvm_xengine.relax_ir.constants import lift_constants
from tvm_xengine.training.body.declaration import SEED, STEP
from tvm_xengine.training.build import read_supported_ops
from tvm_xengine.training.differentiate import Randomness, emit_forward
from tvm_xengine.training.emitter import Emitter
from tvm_xengine.training.forward.precision import with_sensitive_ops_widened
from tvm_xengine.training.forward.simplify import simplified
from tvm_xengine.training.gradients.elements.randomness import draws_random_numbers

FUNCTION = "forward_and_gradient"


@dataclass(frozen=True)
class Evaluation:
    """What the compiled function returned.

    Attributes
    ----------
    outputs
        The tensors that the forward function returns.
    gradients
        Of the parameters that the outputs depend on in a differentiable way, by name.
    """

    outputs: tuple[Array, ...]
    gradients: Mapping[str, Array]

    @staticmethod
    def of(results: Sequence[Array], names: Sequence[str]) -> Evaluation:
        """From all results of a function; the last ones are gradients of the parameters in `names`."""
        count = len(results) - len(names)
        return Evaluation(tuple(results[:count]), dict(zip(names, results[count:], strict=True)))


@dataclass(frozen=True)
class Differentiated:
    """A function that returns the outputs of a model and then gradients of its parameters.

    Attributes
    ----------
    values
        What the function is called with, by name, in order.
    trained
        The parameters whose gradients it returns.
    """

    mod: tvm.IRModule
    values: Mapping[str, Array]
    trained: tuple[str, ...]


def differentiated(
    model: ForwardModel,
    inputs: Sequence[Array],
    output_gradients: Mapping[int, Array],
    *,
    with_op: bool = False,
) -> Differentiated:
    """The forward pass and the backward pass of a model as one function, called `FUNCTION`.

    With `with_op` it begins with an op, and returns its result first: some models have none.
    """
    source = simplified(with_sensitive_ops_widened(read_supported_ops(model.main)))
    source, constants = lift_constants(source)
    builder = relax.BlockBuilder()
    emitter = Emitter(builder)
    params = list(source.params)
    values: dict[str, Array] = dict(zip(model.input_names, inputs, strict=True))
    values |= {**model.state, **constants}
    for param in params:
        emitter.reserve(param.name)
    randomness = None
    if draws_random_numbers(source):
        counters = [relax.Var(name, relax.TensorType((), "int32")) for name in (SEED, STEP)]
        params += counters
        values |= {name: np.array(1, "int32") for name in (SEED, STEP)}
        randomness = Randomness(*counters)
    above = {}
    for position, gradient in output_gradients.items():
        name = f"output_gradient_{position}"
        above[position] = relax.Var(
            name, relax.TensorType(gradient.shape, source.outputs[position].ty.dtype)
        )
        values[name] = gradient
    params += above.values()
    trained = [param for param in source.params if param.name in model.parameters]
    names: list[str] = []
    with builder.function(FUNCTION, params=params):
        with builder.dataflow():
            start = {param: param for param in source.params}
            tape = emit_forward(emitter, source, start, trained, randomness)
            one = relax.const(1.0, "float32")
            first = [emitter.bind(relax.op.full((), one, "float32"), "first")] if with_op else []
            fields = [*first, *tape.outputs]
            for param, gradient in tape.pull_back(emitter, above):
                names.append(param.name)
                fields.append(gradient)
            result = builder.emit_output(relax.Tuple(fields), "results")
        builder.emit_func_output(result)
    mod = builder.get()
    mod[FUNCTION] = mod[FUNCTION].with_attr("global_symbol", FUNCTION)
    return Differentiated(mod, {param.name: values[param.name] for param in params}, tuple(names))


def evaluate(
    model: ForwardModel, inputs: Sequence[Array], output_gradients: Mapping[int, Array]
) -> Evaluation:
    """Run the forward pass and the backward pass once in TVM's virtual machine."""
    function = differentiated(model, inputs, output_gradients)
    lowered = tvm.transform.Sequential([LowerToKernels(FUNCTION)])(function.mod)
    constants = (lowered[FUNCTION].attrs or {}).get(CONSTANTS_ATTR, ())
    arguments = [*function.values.values(), *(constant.numpy() for constant in constants)]
    return Evaluation.of(computed(lowered, arguments, FUNCTION), function.trained)
