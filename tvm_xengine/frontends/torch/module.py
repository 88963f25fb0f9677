"""PyTorch modules and losses written in PyTorch, through `torch.export`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from traceback import walk_tb
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torch.nn.utils.rnn import PackedSequence
from torch.utils import _pytree as pytree
from tvm import relax

from tvm_xengine.checks.operators import first_line
from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.call_structure import Fixed, Structure
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.torch.importer import import_exported_program
from tvm_xengine.frontends.torch.lost_changes import changes_undone, notes_of
from tvm_xengine.frontends.torch.lost_gradients import lost_gradients
from tvm_xengine.frontends.torch.module_tensors import check_tensors
from tvm_xengine.frontends.torch.program.checks import RETURNED, is_returned_tensor
from tvm_xengine.frontends.torch.quiet import quiet_export

_PREFIX = "module."
"""Before every name of a tensor in the wrapped module."""
_PACKED = {"pack_padded_sequence", "pad_packed_sequence"}
_TRANSFORMS = ("_functorch/vmap.py", "_functorch/eager_transforms.py")
_OPERATOR = re.compile(r"\w+\.\w+\.\w+")
"""All that torch.export says of an operator that it cannot follow, such as ``aten._ctc_loss.Tensor``."""

_WOKEN = (
    "the module is in evaluation mode as a whole, and is trained in training mode; modes of its parts"
    " are kept where the module itself is in training mode"
)

Restore = Callable[[Sequence[Any]], Any]
"""Puts flat outputs into the structure that a module returns."""


@dataclass(frozen=True)
class TracedModule:
    """A module exported for inputs like those that it was traced with.

    Attributes
    ----------
    outputs
        Number of tensors that it returns.
    restore
        Puts them into the structure that the module returns.
    """

    model: ForwardModel
    outputs: int
    restore: Restore


@dataclass(frozen=True)
class Call:
    """The arguments of a module, by the names of its parameters.

    Attributes
    ----------
    tensors
        Arguments that hold tensors, which are inputs of the step; what else they hold is constant.
    fixed
        Other arguments; they are constants of the step.
    positional
        Names of those that are passed by position.
    structure
        All of them, in order.
    """

    tensors: Mapping[str, Any]
    fixed: Mapping[str, Any]
    positional: tuple[str, ...]
    structure: tuple[Structure, ...]

    def apply(self, function: Callable[..., Any], tensors: Mapping[str, Any]) -> Any:
        """Call a function with other tensors."""
        values = {**self.fixed, **tensors}
        given = [values.pop(name) for name in self.positional]
        return function(*given, **values)


def call_of(module: nn.Module, inputs: object) -> Call:
    """The arguments that `inputs` (a tensor, a sequence or a mapping) stand for."""
    if isinstance(module, torch.jit.ScriptModule):
        raise UnsupportedModelError(
            f"{type(module).__name__}: torch.export takes no TorchScript; give the module that it was"
            " made from"
        )
    if isinstance(inputs, Mapping):
        arguments, positional = dict(inputs), []
    else:
        given = tuple(inputs) if isinstance(inputs, list | tuple) else (inputs,)
        try:
            bound = inspect.signature(module.forward).bind(*given)
        except TypeError as error:
            raise UnsupportedModelError(
                f"{type(module).__name__}.forward cannot be called with {len(given)} example"
                f" inputs: {error}"
            ) from None
        arguments = {}
        for name, value in bound.arguments.items():
            kind = bound.signature.parameters[name].kind
            many = kind is inspect.Parameter.VAR_POSITIONAL
            arguments |= {f"{name}_{k}": v for k, v in enumerate(value)} if many else {name: value}
        positional = list(arguments)
    tensors = {name: value for name, value in arguments.items() if _holds_tensors(value)}
    fixed = {name: value for name, value in arguments.items() if name not in tensors}
    if not tensors:
        raise UnsupportedModelError("expected at least one tensor among the example inputs")
    structure = tuple(_structure(name, value) for name, value in arguments.items())
    converted = {name: _as_torch(value) for name, value in tensors.items()}
    return Call(converted, fixed, (*positional,), structure)


def output_of(module: nn.Module, inputs: object) -> Any:
    """What a module returns; it, its tensors and the inputs stay as they are.

    Raises
    ------
    UnsupportedModelError
        If it cannot be called with them.
    """
    call = call_of(module, inputs)
    check_tensors(type(module).__name__, module, "")
    held = {
        name: one.detach().clone()
        for name, one in (*module.named_parameters(), *module.named_buffers())
    }
    tensors = pytree.tree_map_only(torch.Tensor, torch.clone, dict(call.tensors))
    changed: set[str] = set()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]), changes_undone(module, changed):
            return call.apply(lambda *a, **k: functional_call(module, held, a, k), tensors)
    except Exception as error:
        raise UnsupportedModelError(
            f"{type(module).__name__} cannot be called with the example inputs: {first_line(error)}"
        ) from error


def trace_module(
    module: nn.Module, inputs: object, *, training: bool, varying: Collection[str] = ()
) -> TracedModule:
    """The forward function of a module in training or in evaluation mode.

    In training mode submodules that were put into evaluation mode stay there, unless the module as
    a whole is in evaluation mode.

    Parameters
    ----------
    varying
        Names of buffers that something else writes: nothing that depends on them is precomputed.
    """
    call = call_of(module, inputs)
    examples = dict(call.tensors)
    return _traced(module, _Wrapped(module, call), examples, training, varying=varying)


def trace_with_loss(
    module: nn.Module,
    inputs: object,
    loss: Callable[..., torch.Tensor] | None,
    targets: Sequence[object] = (),
) -> ForwardModel:
    """A model of inputs and targets that returns ``loss(outputs, *targets)``.

    Parameters
    ----------
    loss
        None takes the scalar that the module returns, or its entry ``loss``.
    """
    call = call_of(module, inputs)
    values = [_as_torch(target) for target in targets]
    names = ["targets"] if len(values) == 1 else [f"targets_{k}" for k in range(len(values))]
    names = [f"{one}_of_loss" if one in call.tensors else one for one in names]
    examples = {**call.tensors, **dict(zip(names, values, strict=True))}
    wrapped = _Wrapped(module, call, loss or _own_loss, names)
    return _traced(module, wrapped, examples, True).model


def trace_loss(
    loss: Callable[..., torch.Tensor], prediction: torch.Tensor, target: torch.Tensor
) -> relax.Function:
    """The Relax function ``(prediction, target) -> scalar`` of a loss."""
    traced = _traced(
        nn.Module(),
        _Loss(loss),
        {"prediction": prediction, "target": target},
        True,
        "the loss",
    )
    model = traced.model
    if model.state or len(model.input_names) != 2:
        raise UnsupportedModelError(
            "a loss with tensors of its own needs the PyTorch module; compile that"
        )
    return model.main


class _Wrapped(nn.Module):  # type: ignore[misc]
    """A module called by the names of its arguments, with a loss behind it."""

    def __init__(
        self,
        module: nn.Module,
        call: Call,
        loss: Callable[..., torch.Tensor] | None = None,
        targets: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.module = module
        self.loss = loss
        self._call = call
        self._targets = tuple(targets)
        self.changed: set[str] = set()

    @property
    def arguments(self) -> tuple[Structure, ...]:
        """What the module is called with."""
        return self._call.structure

    def forward(self, **tensors: Any) -> Any:
        targets = [tensors.pop(name) for name in self._targets]
        with _written_in_place(self), changes_undone(self.module, self.changed):
            outputs = self._call.apply(self.module, tensors)
            return outputs if self.loss is None else _scalar(self.loss(outputs, *targets))


@contextmanager
def _written_in_place(module: nn.Module) -> Iterator[None]:
    """Writes into each buffer what was assigned to its name, which torch.export does not follow."""
    before = [
        (owner, name, buffer)
        for owner in module.modules()
        for name, buffer in owner._buffers.items()
    ]
    yield
    assigned = [
        (owner, name, old, new)
        for owner, name, old in before
        if (new := owner._buffers.get(name)) is not old
    ]
    for owner, name, old, new in assigned:
        owner._buffers[name] = old
        if old is None or new is None or (new.shape, new.dtype) != (old.shape, old.dtype):
            raise UnsupportedModelError(
                f"forward assigns {_described(new)} to the buffer {name} of {type(owner).__name__},"
                f" which holds {_described(old)}; register it with the shape and type that it gets"
            )
    copies = [new.detach().clone() for *_, new in assigned]
    for (_, _, old, _), copy in zip(assigned, copies, strict=True):
        old.copy_(copy)


def _described(value: torch.Tensor | None) -> str:
    if value is None:
        return "nothing"
    return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"


class _Loss(nn.Module):  # type: ignore[misc]
    def __init__(self, loss: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return _scalar(self.loss(prediction, target))


def _scalar(loss: Any) -> torch.Tensor:
    if not isinstance(loss, torch.Tensor) or loss.ndim:
        found = tuple(loss.shape) if isinstance(loss, torch.Tensor) else type(loss).__name__
        raise UnsupportedModelError(
            f"expected a tensor without dimensions from the loss, such as a mean, got {found}"
        )
    return loss


def _own_loss(outputs: Any) -> torch.Tensor:
    if isinstance(outputs, torch.Tensor):
        return outputs
    found = outputs.get("loss") if isinstance(outputs, Mapping) else getattr(outputs, "loss", None)
    if not isinstance(found, torch.Tensor):
        raise UnsupportedModelError("the module returns no loss; say which one to minimise")
    return found


def _traced(
    module: nn.Module,
    wrapped: nn.Module,
    examples: dict[str, Any],
    training: bool,
    name: str = "",
    *,
    varying: Collection[str] = (),
) -> TracedModule:
    title = name or type(module).__name__
    check_tensors(title, wrapped, _PREFIX)
    if torch.is_autocast_enabled("cpu"):
        raise UnsupportedModelError(
            f"{title} is given under torch.autocast, which a step does not see when it is called; open it"
            ' in forward, or give precision="bfloat16"'
        )
    is_woken = training and not module.training
    with (
        torch.inference_mode(False),
        _in_mode(module, training),
        lost_gradients(wrapped, _PREFIX) as lost,
    ):
        try:
            with quiet_export():
                program = torch.export.export(wrapped, (), examples)
        except UnsupportedModelError:
            raise
        except Exception as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise UnsupportedModelError(
                f"{title}: torch.export refuses the module: {_with_advice(lines[0], error)}"
            ) from error
        _unwrap(program)
        model = import_exported_program(title, program, prefix=_PREFIX, varying=varying)
    spec = program.call_spec.out_spec
    changed = notes_of(wrapped.changed) if isinstance(wrapped, _Wrapped) else []
    woken = [_WOKEN] if is_woken else []
    model = replace(
        model,
        notes=(*model.notes, *lost, *changed, *woken),
        arguments=wrapped.arguments if isinstance(wrapped, _Wrapped) else (),
    )
    returned = [one for one in program.graph_signature.output_specs if one.kind in RETURNED]
    is_tensor = list(map(is_returned_tensor, returned))

    def restore(values: Sequence[Any]) -> Any:
        tensors = iter(values)
        leaves = [
            next(tensors) if whether else getattr(one.arg, "value", None)
            for one, whether in zip(returned, is_tensor, strict=True)
        ]
        return pytree.tree_unflatten(leaves, spec)

    return TracedModule(model, sum(is_tensor), restore)


def _unwrap(program: torch.export.ExportedProgram) -> None:
    """Call the layers of a wrapped module as in the module."""
    for node in program.graph.nodes:
        stack = node.meta.get("nn_module_stack")
        if stack:
            node.meta["nn_module_stack"] = {
                key: (f"{path}.".removeprefix(_PREFIX).removesuffix("."), kind)
                for key, (path, kind) in stack.items()
            }


@contextmanager
def _in_mode(module: nn.Module, training: bool) -> Iterator[None]:
    """The module in training or evaluation mode for a while."""
    modes = {one: one.training for one in module.modules()}
    if training and not module.training:
        module.train()
    if not training:
        module.eval()
    try:
        yield
    finally:
        for one, mode in modes.items():
            one.training = mode


def _holds_tensors(value: object) -> bool:
    leaves = pytree.tree_leaves(value)
    return any(hasattr(leaf, "__dlpack__") for leaf in leaves)


def _structure(name: str, value: Any) -> Structure:
    if not _holds_tensors(value):
        return Fixed(name, value)
    if isinstance(value, Mapping):
        return {key: _structure(f"{name}_{key}", one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_structure(f"{name}_{k}", one) for k, one in enumerate(value)]
    return None


def _as_torch(value: object) -> Any:
    """A tensor, or the tensors in a structure, as PyTorch's."""

    def converted(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.detach()
        return torch.from_dlpack(leaf) if hasattr(leaf, "__dlpack__") else leaf

    return pytree.tree_map(converted, value)


def _meets_packed(frame: FrameType) -> bool:
    """Whether a function makes or takes a packed sequence."""
    return frame.f_code.co_name in _PACKED or any(
        isinstance(value, PackedSequence) for value in frame.f_locals.values()
    )


def _with_advice(refusal: str, error: Exception) -> str:
    """The sentence of torch.export, and what to do where a whole class of models meets it."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    if any(map(_meets_packed, frames)):
        return (
            f"{refusal.rstrip('.')}; packed sequences are as long as the values of lengths say, and a"
            " step has static shapes; give the padded batch, and mask or gather what lies behind the ends"
        )
    if any(frame.f_code.co_filename.endswith(_TRANSFORMS) for frame in frames):
        return (
            f"{refusal.rstrip('.')}; forward transforms functions (torch.func.vmap, grad, jacrev and"
            " others), which torch.export cannot follow here; write it with operators over the batch"
        )
    if "Cache'> in output" in refusal:
        found = refusal.partition(",")[0]
        return (
            f"{found}; a model of Hugging Face returns a cache for generation unless its"
            " configuration says use_cache=False: set model.config.use_cache = False"
        )
    if "data-dependent" in refusal:
        found = refusal.partition("\n")[0].rstrip(".")
        return (
            f"{found}; forward reads the value of a tensor as a number, as float(t), t.item() and"
            " `if t > 0` do, and so do a batch norm with momentum=None, a transformer that is not told"
            " whether its mask is causal, a distribution that checks its arguments, and GaussianNLLLoss,"
            " which checks the variance; compute with the tensor (give tgt_is_causal or is_causal;"
            " Distribution.set_default_validate_args(False))"
        )
    if _OPERATOR.fullmatch(refusal):
        return (
            f"{refusal} returns tensors whose shapes are known only once it runs, and a step has static"
            " shapes; write that part of the model or loss with other operators"
        )
    if "fake tensor in the exported program constant's list" in refusal:
        return (
            "forward reads a tensor past autograd, as weight.data does, or makes one that torch.export"
            " cannot follow; use weight.detach(), and keep constants in buffers"
        )
    return refusal
