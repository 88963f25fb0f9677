from __future__ import annotations

import socket
import socketserver
import threading
from types import SimpleNamespace

import pytest
from tvm import rpc

from tests.codegen.kernels import BASELINE, matmul, scale_and_shift
from tvm_xengine.codegen.device_kernel import prepare_kernel
from tvm_xengine.codegen.targets import resolve_target
from tvm_xengine.cost_models.measure import measure_kernels
from tvm_xengine.cost_models.measurements import MeasurementCache
from tvm_xengine.cost_models.rpc_timer import RpcTimer
from tvm_xengine.cost_models.timing import Effort
from tvm_xengine.errors import MeasurementError

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
    with socketserver.TCPServer(("127.0.0.1", 0), _Mute) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        try:
            with pytest.raises(MeasurementError, match="found something that answers otherwise"):
                RpcTimer(f"127.0.0.1:{port}")
        finally:
            server.shutdown()


@pytest.mark.parametrize(
    "servers, found", [((), "no boards"), (("jetson", "imx"), "boards of imx, jetson")]
)
def test_a_tracker_without_boards_of_the_key_is_said(monkeypatch, servers, found):
    """TVM's own tracker needs a web server that is not among our dependencies."""
    entries = [{"key": f"server:{key}", "addr": ["10.0.0.1", 9090]} for key in servers]
    tracker = SimpleNamespace(summary=lambda: {"server_info": entries, "queue_info": {}})
    monkeypatch.setattr(rpc, "connect_tracker", lambda host, port: tracker)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(MeasurementError, match=f"expected boards of key pi .*found {found};"):
            RpcTimer(f"127.0.0.1:{port}/pi")


class _Mute(socketserver.BaseRequestHandler):
    """Answers nonsense."""

    def handle(self) -> None:
        self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
