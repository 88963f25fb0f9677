"""Time kernels on boards behind TVM's RPC: a server, or a tracker that lends boards."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import tvm
from tvm import rpc
from tvm.target import Target

from tvm_xengine.cost_models.measure.caches import COLD
from tvm_xengine.cost_models.measure.machine import Machine
from tvm_xengine.cost_models.measure.this_machine import device_fingerprint, remote_machine
from tvm_xengine.cost_models.measure.timers import passing_libraries
from tvm_xengine.cost_models.measure.timing import (
    Effort,
    call_of,
    example_arguments,
)
from tvm_xengine.errors import BoardLostError, MeasurementError
from tvm_xengine.kernels.device_kernel import DeviceKernel
from tvm_xengine.kernels.store.kernel_store import OnProgress

_SESSION_TIMEOUT_S = 600
"""Seconds that a tracker lends a board for: ten minutes."""

_EVICTED_BYTES = 256 << 10
"""Half of a second level cache of 512 KiB, as boards often have; a board does not say its own."""

_LOOK_AGAIN_S = 5.0
"""Seconds that a board is waited for before the tracker is asked whether there is one at all."""

_MOST_FAILED = 3
"""A tracker that has lent so many boards that do not answer is given up."""

_HOST_NAME = "/etc/hostname"

_CONNECT_TIMEOUT_S = 10
"""Seconds to wait for an answer of a server or tracker."""


class RpcTimer:
    """Compiles here, uploads, and times there by the board's own clock.

    Parameters
    ----------
    address
        ``host:port`` of a server, or ``host:port/key`` of a tracker and the key of its boards.
    compiling
        Held while kernels are compiled, so that timers of several boards do it in turns.

    Raises
    ------
    MeasurementError
        When nothing answers at the address.
    """

    def __init__(
        self, address: str, compiling: AbstractContextManager[object] | None = None
    ) -> None:
        self._address = address
        self._compiling = compiling or nullcontext()
        self._session = _connect(address)
        self._host = _host_name(self._session)
        self._folder = TemporaryDirectory()
        self._paths: dict[str, Path] = {}
        self._modules: dict[Path, tvm.runtime.Module] = {}

    def device(self, target: Target) -> str:
        """The boards behind the address, which are all of one kind."""
        return device_fingerprint(target, remote_machine(target, self._address))

    def machine(self, target: Target) -> Machine:
        """What is known here of the board, of which the address may have several."""
        return remote_machine(target, self._address, self._host)

    def clock(self, kernel: DeviceKernel) -> str:
        """A board has only its wall clock."""
        return "wall"

    def prepare(self, kernels: Sequence[DeviceKernel], on_compiled: OnProgress | None) -> None:
        """Compile and upload.

        Raises
        ------
        BoardLostError
            When the board stops answering.
        """
        compile_all = passing_libraries(Path(self._folder.name))
        with self._compiling:
            self._paths = dict(compile_all(kernels, on_compiled))
        try:
            self._upload()
        except RuntimeError:
            if self._is_alive():
                raise
            self._connect_again(kernels[0].name)

    def time_us(self, kernel: DeviceKernel, effort: Effort) -> tuple[float, ...]:
        """Run the kernel on the board, where there is no library.

        Where the session ends, a new one tries the kernel once more: one that ends two sessions is to
        blame, and the next kernels run in a third one.

        Raises
        ------
        MeasurementError
            When the kernel does not run.
        BoardLostError
            When the board stops answering.
        """
        if kernel.library is not None:
            raise MeasurementError(
                f"kernel {kernel.name} calls {kernel.source}, which boards do not have; name only"
                ' "tir" in the kernels of the device'
            )
        if kernel.symbol not in self._paths:
            raise MeasurementError(
                f"kernel {kernel.name} does not compile: it takes too long, or too much memory"
            )
        try:
            return self._timed_us(kernel, effort)
        except _SessionEndedError:
            self._connect_again(kernel.name)
        try:
            return self._timed_us(kernel, effort)
        except _SessionEndedError as error:
            self._connect_again(kernel.name)
            raise MeasurementError(
                f"kernel {kernel.name} does not run at {self._address}, where it ended two sessions:"
                f" {error}"
            ) from error

    def _timed_us(self, kernel: DeviceKernel, effort: Effort) -> tuple[float, ...]:
        try:
            module = self._modules[self._paths[kernel.symbol]]
            device = self._session.cpu()
            arguments = example_arguments(call_of(kernel), device)
            timed = module.time_evaluator(kernel.symbol, device, number=1, **_repeats(effort))(
                *arguments
            )
        except (RuntimeError, ValueError, TypeError) as error:
            if not self._is_alive():
                raise _SessionEndedError(str(error)) from error
            raise MeasurementError(
                f"kernel {kernel.name} does not run at {self._address}: {error}"
            ) from error
        return tuple(float(seconds) * 1e6 for seconds in timed.results)

    def run(self, kernel: DeviceKernel) -> list[tvm.runtime.Tensor]:
        """The example arguments of a kernel, in which it has run once.

        Where the session ends, a new one tries it once more.

        Raises
        ------
        BoardLostError
            When the board stops answering.
        """
        try:
            return self._run(kernel)
        except (RuntimeError, ValueError, TypeError):
            if self._is_alive():
                raise
            self._connect_again(kernel.name)
            return self._run(kernel)

    def _run(self, kernel: DeviceKernel) -> list[tvm.runtime.Tensor]:
        arguments = example_arguments(call_of(kernel), self._session.cpu())
        self._modules[self._paths[kernel.symbol]][kernel.symbol](*arguments)
        return list(arguments)

    def sentinel(self) -> None:
        """Nothing that runs here shows how fast a board is."""

    def close(self) -> None:
        """Delete what was compiled, and give the board back."""
        self._modules.clear()
        self._session = None
        self._folder.cleanup()

    def _upload(self) -> None:
        self._modules.clear()
        for path in dict.fromkeys(self._paths.values()):
            self._session.upload(str(path))
            self._modules[path] = self._session.load_module(path.name)

    def _is_alive(self) -> bool:
        """Whether the session still does the least thing."""
        try:
            self._session.get_function("runtime.config_threadpool")
        except (RuntimeError, ValueError):
            return False
        return True

    def _connect_again(self, name: str) -> None:
        self._modules.clear()
        try:
            self._session = _connect(self._address)
            self._upload()
        except (MeasurementError, RuntimeError) as error:
            raise BoardLostError(
                f"the board at {self._address} ({self._host or 'without a name'}) was lost while it ran"
                f" kernel {name}, and takes no new session: {error}; the same command goes on from here"
            ) from error


class _SessionEndedError(Exception):
    """The session with the board has ended, because of the kernel or not."""


def _host_name(session: rpc.RPCSession) -> str | None:
    """What a board calls itself, where its server gives files away, as TVM's does in Python."""
    try:
        return bytes(session.download(_HOST_NAME)).decode("ascii").strip() or None
    except (RuntimeError, ValueError):
        return None


def _repeats(effort: Effort) -> dict[str, int]:
    """Options of ``time_evaluator``: single calls behind other work, or batches."""
    if effort.caches == COLD:
        return {"repeat": 15, "cache_flush_bytes": _EVICTED_BYTES}
    return {"repeat": 5, "min_repeat_ms": max(1, int(effort.batch_us / 1000))}


def boards_at(address: str) -> int:
    """How many boards can be measured on at once: one, or those of a tracker with the key.

    Raises
    ------
    MeasurementError
        When nothing answers at the address, or the tracker has no board of the key.
    """
    host, port, key = _reached(address)
    if not key:
        return 1
    with _naming(address):
        return _boards_of(rpc.connect_tracker(host, port), host, port, key)


def _connect(address: str) -> rpc.RPCSession:
    host, port, key = _reached(address)
    with _naming(address):
        if not key:
            return rpc.connect(host, port)
        return _lent(host, port, key)


def _lent(host: str, port: int, key: str) -> rpc.RPCSession:
    """A board of a tracker, which is waited for while others use all that there are."""
    failed = 0
    while True:
        try:
            if (session := _lent_in_time(host, port, key)) is not None:
                return session
        except RuntimeError:  # a board that has just gone was lent
            failed += 1
            if failed == _MOST_FAILED:
                raise
            time.sleep(_LOOK_AGAIN_S)


def _lent_in_time(host: str, port: int, key: str) -> rpc.RPCSession | None:
    """A board of a tracker; None while others use all that there are.

    The tracker itself waits for ever for boards that have gone, so it is asked again and again.
    """
    tracker = rpc.connect_tracker(host, port)
    _boards_of(tracker, host, port, key)
    tracker._sock.settimeout(_LOOK_AGAIN_S)
    try:
        return tracker.request(key, session_timeout=_SESSION_TIMEOUT_S, max_retry=1)
    except RuntimeError as error:
        if "timed out" not in str(error):
            raise
        return None
    finally:
        tracker.close()


def _reached(address: str) -> tuple[str, int, str]:
    """Host, port and key of an address where somebody answers."""
    server, _, key = address.partition("/")
    host, _, port_text = server.rpartition(":")
    if not host or not port_text.isdecimal() or not 0 < int(port_text) < 1 << 16:
        raise MeasurementError(
            f"expected host:port of a TVM RPC server, or host:port/key of a tracker, found {address!r}"
        )
    port = int(port_text)
    role, start = _role(key)
    try:
        _knock(host, port)
    except OSError as error:
        raise MeasurementError(
            f"expected a TVM RPC {role} at {server}, found {_why_nobody_answers(error)}; start one there"
            f" with {start} --host 0.0.0.0 --port {port}, or name the address of one that runs"
        ) from error
    return host, port, key


@contextmanager
def _naming(address: str) -> Iterator[None]:
    """Say what was expected where something answers otherwise."""
    server, _, key = address.partition("/")
    role, start = _role(key)
    try:
        yield
    except (RuntimeError, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()
        raise MeasurementError(
            f"expected a TVM RPC {role} of version {tvm.__version__} at {server}, found something that"
            f" answers otherwise ({reason[-1] if reason else type(error).__name__}); name the port"
            f" that {start} printed when it started"
        ) from error


def _role(key: str) -> tuple[str, str]:
    """What is expected at an address, and how it is started."""
    if key:
        return "tracker", "python -m tvm.exec.rpc_tracker"
    return "server", "python -m tvm.exec.rpc_server"


def _knock(host: str, port: int) -> None:
    """Whether somebody answers, since TVM itself would try for a minute, then wait for ever.

    Servers and trackers close a connection that does not begin with their number.
    """
    with socket.create_connection((host, port), _CONNECT_TIMEOUT_S) as connection:
        connection.sendall(bytes(4))
        connection.recv(1)


def _boards_of(tracker: rpc.TrackerSession, host: str, port: int, key: str) -> int:
    keys = [entry["key"].partition(":")[2] for entry in tracker.summary()["server_info"]]
    if key not in keys:
        found = f"boards of {', '.join(sorted(set(keys)))}" if keys else "no boards"
        raise MeasurementError(
            f"expected boards of key {key} at the TVM RPC tracker {host}:{port}, found {found}; start"
            f" a server on each with python -m tvm.exec.rpc_server --tracker {host}:{port} --key {key}"
        )
    return keys.count(key)


def _why_nobody_answers(error: OSError) -> str:
    match error:
        case ConnectionRefusedError():
            return "no program that listens on this port"
        case socket.gaierror():
            return "no machine of this name"
        case TimeoutError():
            return (
                f"no answer in {_CONNECT_TIMEOUT_S} s (is it busy with another session, or hung?)"
            )
        case _:
            return f"no way there ({error.strerror or error})"
