"""Bind every tensor of a scheduled function to its bytes in the arenas."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import tvm
from tvm import relax

from tvm_xengine.errors import InvalidScheduleError, UnsupportedModuleError
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.relax_ir.dataflow import returned_fields, single_block, step_function
from tvm_xengine.relax_ir.kernel_calls import VIEW_OP
from tvm_xengine.relax_ir.signature import CONSTANTS_ATTR, StepSignature
from tvm_xengine.relax_ir.types import static_tensor
from tvm_xengine.scheduling.arena.plan import ArenaPlan
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Compute, Free, Schedule, Transfer

VIEWS_ATTR = "tvm_xengine.views"
"""Function attribute (JSON): the arena view behind each parameter, as `views_of` reads it."""

CONTEXTS_ATTR = "tvm_xengine.contexts"
"""Function attribute (JSON): symbols of the kernels whose contexts follow the views."""

INTERFACE_ATTR = "tvm_xengine.interface"
"""Function attribute (JSON): a `StepInterface`."""

COPY_FUNCTION = "runtime.TVMTensorCopyFromTo"


@dataclass(frozen=True)
class ArenaView:
    """A tensor at a fixed place in a device's arena."""

    device: str
    offset_bytes: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class StepInterface:
    """Where a bound step finds its inputs and leaves its results.

    Attributes
    ----------
    inputs
        View of each batch, hyper and state tensor; state keeps its place from step to step.
    roles
        `Role` value of each input.
    results
        View of each result when the step has ended.
    arena_bytes
        Size of each device's arena.
    """

    inputs: Mapping[str, ArenaView]
    roles: Mapping[str, str]
    results: Mapping[str, ArenaView]
    arena_bytes: Mapping[str, int]


@dataclass(frozen=True)
class _Place:
    device: str
    offset_bytes: int


@tvm.transform.module_pass(opt_level=0, name="BindArenas")
class BindArenas:
    """Turn a function that `ApplySchedule` has made into calls on fixed memory.

    .. code-block:: python

        def train_step(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                h = R.call_tir(f, (x,), ...)
                h_on_gpu = R.to_vdevice(h, gpu)
                ...

    becomes a function whose parameters are views into the arenas (and the contexts of kernels that
    call a library), and which allocates nothing

    .. code-block:: python

        def train_step(cpu_0: R.Tensor((4,), "float32"), cpu_64: ..., gpu_0: ...):
            R.call_packed("f__cpu", cpu_0, cpu_64)
            R.call_packed("runtime.TVMTensorCopyFromTo", cpu_64, gpu_0)
            ...

    No pass that re-plans memory may run afterwards.

    Parameters
    ----------
    problem, schedule
        What `ApplySchedule` was given.
    arenas
        Of the same schedule.
    kernels
        What runs for each (kernel name, device).
    """

    def __init__(
        self,
        problem: Problem,
        schedule: Schedule,
        arenas: ArenaPlan,
        kernels: Mapping[tuple[str, str], DeviceKernel],
        func_name: str = "train_step",
    ) -> None:
        self.problem = problem
        self.schedule = schedule
        self.arenas = arenas
        self.kernels = kernels
        self.func_name = func_name

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        func = step_function(mod, self.func_name)
        binder = _Binder(self.problem, self.arenas, self.kernels)
        bound = binder.run(func, self.schedule)
        attrs = {name: value for name, value in func.attrs.items() if name != CONSTANTS_ATTR}
        attrs[VIEWS_ATTR] = json.dumps([asdict(view) for view in binder.params])
        attrs[CONTEXTS_ATTR] = json.dumps(list(binder.contexts))
        attrs[INTERFACE_ATTR] = json.dumps(asdict(binder.interface(func)))
        return tvm.IRModule(
            {tvm.ir.GlobalVar(self.func_name): bound.with_attrs(attrs)},
            global_infos=mod.global_infos,
        )


def views_of(func: relax.Function) -> tuple[ArenaView, ...]:
    """The arena view behind each parameter of a function that `BindArenas` has made."""
    rows = json.loads(str(func.attrs[VIEWS_ATTR]))
    return tuple(ArenaView(**{**row, "shape": tuple(row["shape"])}) for row in rows)


def contexts_of(func: relax.Function) -> tuple[str, ...]:
    """Symbols of the kernels whose contexts a bound function takes after its views."""
    return tuple(str(symbol) for symbol in json.loads(str(func.attrs[CONTEXTS_ATTR])))


def interface_of(func: relax.Function) -> StepInterface:
    """The interface of a function that `BindArenas` has made."""
    document = json.loads(str(func.attrs[INTERFACE_ATTR]))
    views = {
        key: {
            name: ArenaView(**{**row, "shape": tuple(row["shape"])})
            for name, row in document[key].items()
        }
        for key in ("inputs", "results")
    }
    return StepInterface(roles=document["roles"], arena_bytes=document["arena_bytes"], **views)


class _Binder:
    """Walks the bindings and the schedule's steps side by side."""

    def __init__(
        self,
        problem: Problem,
        arenas: ArenaPlan,
        kernels: Mapping[tuple[str, str], DeviceKernel],
    ) -> None:
        self.problem = problem
        self.arenas = arenas
        self.kernels = kernels
        self.params: dict[ArenaView, relax.Var] = {}
        self.contexts: dict[str, relax.Var] = {}
        self.place: dict[relax.Var, _Place] = {}
        self.places: dict[relax.Var, tuple[_Place, ...]] = {}
        self.calls: list[relax.Call] = []

    def run(self, func: relax.Function, schedule: Schedule) -> relax.Function:
        initial = {
            instance.tensor: instance
            for instance in self.arenas.residency.instances
            if instance.start == -1
        }
        for param in func.params:
            instance = initial[param.name]
            self.place[param] = _Place(instance.device, self.arenas.offset_bytes[instance.id])
            self._view(self.place[param], param.ty)
        steps = ((at, step) for at, step in enumerate(schedule.steps) if not isinstance(step, Free))
        for binding in single_block(func).bindings:
            var, value = binding.var, binding.value
            if isinstance(value, relax.TupleGetItem):
                self.place[var] = self.places[value.tuple_value][value.index]
            elif isinstance(value, relax.Call) and value.op.name == VIEW_OP:
                self.place[var] = self.place[value.args[0]]
            elif isinstance(value, relax.Call):
                at, step = next(steps)
                self._bind_step(var, value, at, step)
            elif not isinstance(value, relax.Tuple):
                raise UnsupportedModuleError(
                    f"{var.name} = {value}: expected a binding that ApplySchedule makes"
                )
        return self._function()

    def interface(self, func: relax.Function) -> StepInterface:
        """Where the inputs and results of the bound function are."""
        graph = self.problem.graph
        names = StepSignature.read(func).results or graph.outputs
        returned = returned_fields(func)[: len(names)]
        return StepInterface(
            inputs={
                param.name: self._arena_view(self.place[param], param.ty) for param in func.params
            },
            roles={param.name: graph.tensor[param.name].role.value for param in func.params},
            results={
                name: self._arena_view(self.place[var], var.ty)
                for name, var in zip(names, returned, strict=True)
            },
            arena_bytes=self.arenas.arena_bytes,
        )

    def _bind_step(
        self, var: relax.Var, call: relax.Call, at: int, step: Compute | Transfer
    ) -> None:
        writes = self.arenas.residency.accesses[at].writes
        if isinstance(step, Transfer):
            _expect_call(var, call, "relax.to_vdevice", step)
            instance = writes[step.tensor]
            self.place[var] = _Place(step.dst, self.arenas.offset_bytes[instance])
            source = self._view(self.place[call.args[0]], call.args[0].ty)
            self._emit(COPY_FUNCTION, [source, self._view(self.place[var], var.ty)])
            return
        _expect_call(var, call, "relax.call_tir", step)
        kernel = self.kernels[call.args[0].name_hint, step.device]
        outputs = self.problem.graph.op[step.op].outputs
        places = tuple(
            _Place(step.device, self.arenas.offset_bytes[writes[name]]) for name in outputs
        )
        types = call.ty_args[0].fields if isinstance(var.ty, relax.TupleType) else [var.ty]
        arguments = [self._view(self.place[field], field.ty) for field in call.args[1].fields]
        arguments += [self._view(place, ty) for place, ty in zip(places, types, strict=True)]
        if kernel.workspace_bytes:
            planned_bytes = self.problem.costs[step.op][step.device].workspace_bytes
            if planned_bytes < kernel.workspace_bytes:
                raise InvalidScheduleError(
                    f"{step.op} needs {kernel.workspace_bytes} bytes of workspace on {step.device}, but"
                    f" the problem says {planned_bytes}; make the problem from the same kernels"
                )
            place = _Place(step.device, self.arenas.workspace_offset_bytes[at])
            arguments.append(
                self._view(place, relax.TensorType((kernel.workspace_bytes,), "uint8"))
            )
        if kernel.library is not None:
            arguments.append(self._context(kernel.symbol))
        self._emit(kernel.symbol, arguments)
        if isinstance(var.ty, relax.TupleType):
            self.places[var] = places
        else:
            self.place[var] = places[0]

    def _emit(self, symbol: str, arguments: Sequence[relax.Var]) -> None:
        nothing = relax.TupleType([])
        self.calls.append(relax.Call(relax.ExternFunc(symbol), arguments, None, [nothing]))

    def _view(self, place: _Place, ty: relax.TensorType) -> relax.Var:
        view = self._arena_view(place, ty)
        if view not in self.params:
            name = f"{view.device}_{view.offset_bytes}_{len(self.params)}"
            self.params[view] = relax.Var(name, relax.TensorType(view.shape, view.dtype))
        return self.params[view]

    def _context(self, symbol: str) -> relax.Var:
        if symbol not in self.contexts:
            name = f"context_{len(self.contexts)}"
            self.contexts[symbol] = relax.Var(name, relax.TensorType(None, "int64", ndim=1))
        return self.contexts[symbol]

    def _arena_view(self, place: _Place, ty: relax.TensorType) -> ArenaView:
        shape, dtype = static_tensor("a view", ty)
        return ArenaView(place.device, place.offset_bytes, shape, dtype)

    def _function(self) -> relax.Function:
        builder = relax.BlockBuilder()
        params = [*self.params.values(), *self.contexts.values()]
        with builder.function("bound", params, pure=False):
            for call in self.calls:
                builder.emit(call)
            builder.emit_func_output(relax.Tuple([]))
        return builder.get()["bound"]


def _expect_call(var: relax.Var, call: relax.Call, op_name: str, step: Compute | Transfer) -> None:
    if call.op.name != op_name:
        raise UnsupportedModuleError(
            f"{var.name} is computed by {call.op.name}, but the schedule has {step} there; a pass must"
            " have changed the function after ApplySchedule"
        )
