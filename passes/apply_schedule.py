"""Rewrite a function so that it executes a schedule."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import tvm
from tvm import relax

from tvm_xengine.errors import InvalidScheduleError
from tvm_xengine.kernels.targets import resolve_target
from tvm_xengine.relax_ir.extract import Extraction, extract_graph
from tvm_xengine.relax_ir.signature import StepSignature
from tvm_xengine.scheduling.platform import Platform
from tvm_xengine.scheduling.problem import Problem
from tvm_xengine.scheduling.schedule import Compute, Free, Schedule, Transfer


@tvm.transform.module_pass(opt_level=0, name="ApplySchedule")
class ApplySchedule:
    """Order, repeat and place the kernel calls of a function according to a schedule.

    Under the steps ``h on cpu, a on cpu, y on cpu, a on cpu, h to gpu, z on gpu`` the block

    .. code-block:: python

        h = R.call_tir(f, (x,), ...)
        a = R.call_tir(g, (h,), ...)
        y = R.call_tir(p, (a,), ...)
        z = R.call_tir(q, (h, y), ...)

    becomes (with the devices' memory in the types, ``vdevice``)

    .. code-block:: python

        h = R.call_tir(f, (x,), ...)
        a = R.call_tir(g, (h,), ...)
        y = R.call_tir(p, (a,), ...)
        a_1 = R.call_tir(g, (h,), ...)      # recomputed: `a` may die after `y`
        h_gpu = R.to_vdevice(h, gpu)
        y_gpu = R.to_vdevice(y, gpu)
        z = R.call_tir(q, (h_gpu, y_gpu), ...)

    Nothing may merge equal expressions (``EliminateCommonSubexpr``), reorder bindings or
    re-plan memory afterwards. The module gets one `VDevice` for each device of the platform,
    in its order. The input must come from `LowerToKernels`.

    Parameters
    ----------
    problem
        The problem that the schedule solves; its op and tensor names are those of
        `extract_graph`.
    schedule
        Accepted by `simulate`.
    func_name
        The function to rewrite.
    """

    def __init__(self, problem: Problem, schedule: Schedule, func_name: str = "train_step") -> None:
        self.problem = problem
        self.schedule = schedule
        self.func_name = func_name

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        extraction = extract_graph(
            mod, self.func_name, alignment_bytes=self.problem.platform.alignment_bytes
        )
        if extraction.graph != self.problem.graph:
            raise InvalidScheduleError(
                f"the problem was not made from {self.func_name}: their graphs differ; extract it again"
            )
        vdevices = make_vdevices(self.problem.platform)
        replay = _Replay(mod, self.func_name, self.problem, extraction, vdevices)
        mod = mod.clone()
        mod.update_global_info("vdevice", list(vdevices.values()))
        mod[self.func_name] = replay.run(self.schedule)
        return mod


def make_vdevices(platform: Platform) -> Mapping[str, relax.VDevice]:
    """One `VDevice` for each device, in the platform's order; storage devices are host memory."""
    return {
        device.name: relax.VDevice(resolve_target(device.target or "llvm"), position, "global")
        for position, device in enumerate(platform.devices)
    }


class _Replay:
    """Emits the steps of a schedule, always reading the newest copy of a tensor."""

    def __init__(
        self,
        mod: tvm.IRModule,
        func_name: str,
        problem: Problem,
        extraction: Extraction,
        vdevices: Mapping[str, relax.VDevice],
    ) -> None:
        self.func = mod[func_name]
        self.func_name = func_name
        self.problem = problem
        self.graph = extraction.graph
        self.vdevices = vdevices
        self.kernel = {op: mod.get_global_var(k) for op, k in extraction.kernels.items()}
        self.builder = relax.BlockBuilder(mod)
        self.params = [
            relax.Var(param.name, self._type(param.name, problem.home[param.name]))
            for param in self.func.params
        ]
        # Newest copy of each tensor (views too) on each device.
        self.copy: dict[tuple[str, str], relax.Var] = {
            (param.name, problem.home[param.name]): param for param in self.params
        }

    def run(self, schedule: Schedule) -> relax.Function:
        with self.builder.function("replayed", self.params):
            with self.builder.dataflow():
                for step in schedule.steps:
                    match step:
                        case Compute(op, device):
                            self._compute(op, device)
                        case Transfer(tensor, src, dst):
                            self._transfer(tensor, src, dst)
                        case Free(tensor, device):
                            self._forget(tensor, device)
                result = self.builder.emit_output(relax.Tuple(self._results()))
            self.builder.emit_func_output(result)
        attrs = {**self.func.attrs, "global_symbol": self.func_name}
        return self.builder.get()["replayed"].with_attrs(attrs)

    def _compute(self, name: str, device: str) -> None:
        op = self.graph.op[name]
        arguments = [self._read(tensor, device) for tensor in op.inputs]
        types = [self._type(tensor, device) for tensor in op.outputs]
        is_single = op.outputs == (name,)
        call = relax.call_tir(self.kernel[name], arguments, types[0] if is_single else types)
        result = self.builder.emit(call, name)
        for _, state in op.updates:
            self._forget(state, device)
        for k, tensor in enumerate(op.outputs):
            self._forget(tensor, device)
            self.copy[tensor, device] = (
                result
                if is_single
                else self.builder.emit(relax.TupleGetItem(result, k), f"{name}_{k}")
            )

    def _transfer(self, tensor: str, src: str, dst: str) -> None:
        copy = relax.op.to_vdevice(self._read(tensor, src), self.vdevices[dst])
        self._forget(tensor, dst)
        self.copy[tensor, dst] = self.builder.emit(copy, f"{tensor}_on_{dst}")

    def _read(self, tensor: str, device: str) -> relax.Var:
        """The newest copy of a tensor; a view is made of its base's newest copy."""
        if (tensor, device) in self.copy:
            return self.copy[tensor, device]
        base = self.graph.base[tensor]
        if base == tensor or (base, device) not in self.copy:
            raise InvalidScheduleError(f"{tensor} is read on {device}, but is not there")
        view = relax.op.reshape(self.copy[base, device], self.graph.tensor[tensor].shape)
        self.copy[tensor, device] = self.builder.emit(view, tensor)
        return self.copy[tensor, device]

    def _forget(self, base: str, device: str) -> None:
        for key in [(name, device) for name in self.views_of.get(base, ())] + [(base, device)]:
            self.copy.pop(key, None)

    @cached_property
    def views_of(self) -> Mapping[str, list[str]]:
        """The views of each base tensor."""
        views: dict[str, list[str]] = {}
        for name, base in self.graph.base.items():
            if name != base:
                views.setdefault(base, []).append(name)
        return views

    def _results(self) -> list[relax.Var]:
        """What the function returned, from where the schedule left it."""
        results = [
            self._read(
                name, next(d for d in self.vdevices if (self.graph.base[name], d) in self.copy)
            )
            for name in self.graph.outputs
        ]
        for position in StepSignature.read(self.func).updates:
            state = self.func.params[position].name
            final = self.graph.updated_by[state][1] if state in self.graph.updated_by else state
            results.append(self._read(final, self.problem.home[state]))
        return results

    def _type(self, tensor: str, device: str) -> relax.TensorType:
        info = self.graph.tensor[tensor]
        return relax.TensorType(info.shape, info.dtype, self.vdevices[device])
