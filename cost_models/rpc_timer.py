"""Time kernels on boards behind TVM's RPC: a server, or a tracker that lends boards."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import tvm
from tvm import rpc
from tvm.target import Target

from tvm_xengine.codegen.device_kernel import DeviceKernel
from tvm_xengine.codegen.kernel_store import OnProgress
from tvm_xengine.cost_models.fingerprint import remote_fingerprint
from tvm_xengine.cost_models.timers import passing_libraries
from tvm_xengine.cost_models.timing import Effort, call_of, example_arguments
from tvm_xengine.errors import MeasurementError

_SESSION_TIMEOUT_S = 600
_CONNECT_TIMEOUT_S = 10


class RpcTimer:
    """Compiles here, uploads, and times there by the board's own clock.

    Parameters
    ----------
    address
        ``host:port`` of a server, or ``host:port/key`` of a tracker and the key of its boards.

    Raises
    ------
    MeasurementError
        When nobody answers at the address.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._session = _connect(address)
        self._folder = TemporaryDirectory()
        self._paths: dict[str, Path] = {}
        self._modules: dict[Path, tvm.runtime.Module] = {}

    def device(self, target: Target) -> str:
        """The boards behind the address."""
        return remote_fingerprint(target, self._address)

    def clock(self, kernel: DeviceKernel) -> str:
        """A board has only its wall clock."""
        return "wall"

    def prepare(self, kernels: Sequence[DeviceKernel], on_compiled: OnProgress | None) -> None:
        """Compile and upload."""
        compile_all = passing_libraries(Path(self._folder.name))
        self._paths = dict(compile_all(kernels, on_compiled))
        for path in dict.fromkeys(self._paths.values()):
            self._session.upload(str(path))
            self._modules[path] = self._session.load_module(path.name)

    def time_us(self, kernel: DeviceKernel, effort: Effort) -> tuple[float, ...]:
        """Run the kernel on the board, where there is no library."""
        if kernel.library is not None:
            raise MeasurementError(
                f"kernel {kernel.name} calls {kernel.source}, which boards do not have; name only"
                ' "tir" in the kernels of the device'
            )
        module = self._modules[self._paths[kernel.symbol]]
        device = self._session.cpu()
        try:
            arguments = example_arguments(call_of(kernel), device)
            timed = module.time_evaluator(
                kernel.symbol,
                device,
                number=1,
                repeat=5,
                min_repeat_ms=max(1, int(effort.batch_us / 1000)),
            )(*arguments)
        except (RuntimeError, ValueError, TypeError) as error:
            raise MeasurementError(
                f"kernel {kernel.name} does not run at {self._address}: {error}"
            ) from error
        return tuple(float(seconds) * 1e6 for seconds in timed.results)

    def close(self) -> None:
        """Delete what was compiled; the session ends with this object."""
        self._modules.clear()
        self._folder.cleanup()


def _connect(address: str) -> rpc.RPCSession:
    server, _, key = address.partition("/")
    host, _, port = server.rpartition(":")
    try:
        # TVM itself would try for a minute.
        socket.create_connection((host, int(port)), _CONNECT_TIMEOUT_S).close()
        if key:
            tracker = rpc.connect_tracker(host, int(port))
            return tracker.request(key, session_timeout=_SESSION_TIMEOUT_S)
        return rpc.connect(host, int(port))
    except (RuntimeError, OSError, ValueError) as error:
        raise MeasurementError(
            f"expected a TVM RPC server at host:port, or a tracker at host:port/key; {address!r}:"
            f" {str(error).splitlines()[0] if str(error) else type(error).__name__}"
        ) from error
