from __future__ import annotations

import os
import signal
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from tvm import rpc, tirx

from tests.kernels.kernels import BASELINE, matmul, scale_and_shift
from tvm_xengine.cost_models.measure import rpc_timer
from tvm_xengine.cost_models.measure.measure import measure_kernels
from tvm_xengine.cost_models.measure.measurements import MeasurementCache
from tvm_xengine.cost_models.measure.rpc_timer import RpcTimer
from tvm_xengine.cost_models.measure.timing import Effort
from tvm_xengine.errors import BoardLostError, MeasurementError
from tvm_xengine.kernels.device_kernel import DeviceKernel, prepare_kernel
from tvm_xengine.kernels.targets import resolve_target

QUICK = Effort(rounds=2, batch_us=1000.0, round_us=2000.0)


def test_kernels_are_timed_behind_an_rpc_server(tmp_path):
    server = rpc.Server(host="127.0.0.1", port=9190, port_end=9290)
    try:
        target = resolve_target(BASELINE)
        kernels = [prepare_kernel(f, target) for f in (scale_and_shift(8), matmul(64, 64, 64))]
        cache = MeasurementCache(tmp_path / "m.jsonl")
        timer = RpcTimer(f"127.0.0.1:{server.port}")
        measured = measure_kernels(kernels, cache, effort=QUICK, timer=timer)
        small, large = (measured[kernel.symbol].compute_us for kernel in kernels)
        assert 0 < small < large
    finally:
        server.terminate()


@pytest.mark.parametrize("key, role", [("", "server"), ("/pi", "tracker")])
def test_a_closed_port_is_said_with_what_to_start(key, role):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and nobody listens
        port = taken.getsockname()[1]
        expected = (
            rf"expected a TVM RPC {role} at 127\.0\.0\.1:{port}, found no program that listens on this"
            rf" port; start one there with python -m tvm\.exec\.rpc_{role} --host 0\.0\.0\.0 --port {port}"
        )
        with pytest.raises(MeasurementError, match=expected):
            RpcTimer(f"127.0.0.1:{port}{key}")


@pytest.mark.parametrize("address", ["board", "board:", ":9090", "board:ssh", "board:70000"])
def test_what_is_no_address_is_said(address):
    with pytest.raises(MeasurementError, match=f"expected host:port.*found '{address}'"):
        RpcTimer(address)


def test_a_machine_that_is_not_known_is_said():
    with pytest.raises(MeasurementError, match="found no machine of this name"):
        RpcTimer("board.invalid:9090")


def test_a_server_that_speaks_otherwise_is_said():
    with (
        _listening() as address,
        pytest.raises(MeasurementError, match="found something that answers otherwise"),
    ):
        RpcTimer(address)


def test_a_program_that_does_not_answer_is_said(monkeypatch):
    monkeypatch.setattr(rpc_timer, "_CONNECT_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        with pytest.raises(MeasurementError, match=r"found no answer in 0\.2 s"):
            RpcTimer(f"127.0.0.1:{port}")


@pytest.mark.parametrize(
    "servers, found", [((), "no boards"), (("jetson", "imx"), "boards of imx, jetson")]
)
def test_a_tracker_without_boards_of_the_key_is_said(monkeypatch, servers, found):
    """TVM's own tracker needs a web server that is not among our dependencies."""
    entries = [{"key": f"server:{key}", "addr": ["10.0.0.1", 9090]} for key in servers]
    tracker = SimpleNamespace(summary=lambda: {"server_info": entries, "queue_info": {}})
    monkeypatch.setattr(rpc, "connect_tracker", lambda host, port: tracker)
    with (
        _listening() as address,
        pytest.raises(MeasurementError, match=f"expected boards of key pi .*found {found};"),
    ):
        RpcTimer(f"{address}/pi")


@pytest.mark.slow
def test_a_board_that_is_lost_ends_the_measuring_and_only_the_kernel_that_ran_is_blamed(tmp_path):
    kernels, cache, board = _small_kernels(), MeasurementCache(tmp_path / "m.jsonl"), _Board()
    timer = RpcTimer(board.address)

    def pull_the_plug(done: int, total: int, name: str) -> None:
        board.end()

    with pytest.raises(BoardLostError, match=rf"{board.address} .* was lost .*goes on from here"):
        measure_kernels(kernels, cache, effort=QUICK, timer=timer, on_progress=pull_the_plug)
    assert [m.kernel for m in cache.kernels()] == [kernels[0].key]
    lost = [k for k in kernels if cache.find_failure(k.key, timer.device(k.target)) is not None]
    assert lost == [kernels[1]]


@pytest.mark.slow
def test_measuring_goes_on_when_the_board_takes_a_new_session(tmp_path):
    kernels, cache, board = _small_kernels(), MeasurementCache(tmp_path / "m.jsonl"), _Board()
    timer = RpcTimer(board.address)

    def start_again_once(done: int, total: int, name: str) -> None:
        if done == 1:
            board.start_again()

    try:
        measured = measure_kernels(
            kernels, cache, effort=QUICK, timer=timer, on_progress=start_again_once
        )
    finally:
        board.end()
    # The kernel that ran is tried once more, and is not blamed.
    assert [len(measured[kernel.symbol].rounds_us) for kernel in kernels] == [QUICK.rounds] * 3


class _Board:
    """An RPC server of its own, which can be ended, or its sessions only."""

    def __init__(self) -> None:
        self._server = rpc.Server(host="127.0.0.1", port=9190, port_end=9290)
        self.address = f"127.0.0.1:{self._server.port}"

    def start_again(self) -> None:
        port = self._server.port
        self.end()
        self._server = rpc.Server(host="127.0.0.1", port=port, port_end=port + 1)

    def end(self) -> None:
        sessions = _children(self._server.proc._proc.pid)
        self._server.terminate()
        for pid in sessions:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for each in lists for child in each.read_text().split()]


def _small_kernels() -> list[DeviceKernel]:
    target = resolve_target(BASELINE)
    return [prepare_kernel(func, target) for func in (scale_and_shift(8), *_products())]


def _products() -> list[tirx.PrimFunc]:
    return [matmul(size, size, size) for size in (16, 32)]


class _Nonsense(socketserver.BaseRequestHandler):
    """What no RPC server says."""

    def handle(self) -> None:
        self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@contextmanager
def _listening() -> Iterator[str]:
    """The address of a program that answers nonsense."""
    with socketserver.TCPServer(("127.0.0.1", 0), _Nonsense) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
