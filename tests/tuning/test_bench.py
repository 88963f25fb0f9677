"""Schedules are timed on boards that are taken and given back; where one is lost, the others go on."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from tvm import rpc

from tests.cost_models.measure.test_boards import pull_one_out, registered, tracker
from tests.kernels.kernels import BASELINE, scale_and_shift
from tvm_xengine.commands.process import run
from tvm_xengine.cost_models.measure.timing import Effort
from tvm_xengine.errors import BoardLostError, MeasurementError
from tvm_xengine.kernels.device_kernel import DeviceKernel, prepare_kernel
from tvm_xengine.kernels.targets import resolve_target
from tvm_xengine.tuning import bench
from tvm_xengine.tuning.bench import BenchOnBoards

KERNELS = [prepare_kernel(scale_and_shift(n), resolve_target(BASELINE)) for n in range(8, 14)]


class _Rack:
    """Boards that need no hardware: each times its kernels, or is lost with one."""

    def __init__(self, counts: dict[str, int], *, lost_with: tuple[str, ...] = ()) -> None:
        self.free, self.lost_with = dict(counts), list(lost_with)
        self.used: Counter[str] = Counter()
        self.lock = threading.Lock()

    def take(self, address: str, _compiling: object) -> _Board:
        with self.lock:
            if not self.free[address]:
                raise MeasurementError(f"{address} has no board")
            self.free[address] -= 1
        return _Board(self, address)


class _Board:
    def __init__(self, rack: _Rack, address: str) -> None:
        self._rack, self._address, self._is_lost = rack, address, False

    def prepare(self, kernels: list[DeviceKernel], _on_compiled: None) -> None:
        self._ready = kernels

    def time_us(self, kernel: DeviceKernel, _effort: Effort) -> tuple[float, ...]:
        assert self._ready == [kernel]
        with self._rack.lock:
            if kernel.symbol in self._rack.lost_with:
                self._rack.lost_with.remove(kernel.symbol)
                self._is_lost = True
                raise BoardLostError(f"{self._address} is lost")
            self._rack.used[self._address] += 1
        return (float(KERNELS.index(kernel)),)

    def close(self) -> None:
        with self._rack.lock:
            self._rack.free[self._address] += not self._is_lost


def _bench(rack: _Rack, monkeypatch: pytest.MonkeyPatch) -> BenchOnBoards:
    counts = dict(rack.free)
    monkeypatch.setattr(bench, "boards_at", counts.__getitem__)
    monkeypatch.setattr(bench, "RpcTimer", rack.take)
    return BenchOnBoards(list(counts))


def test_boards_are_given_back_when_the_kernels_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What else measures in the command, such as the costs of the step, needs them between."""
    rack = _Rack({"a": 1, "b": 2})
    on_boards = _bench(rack, monkeypatch)
    for _ in range(2):
        assert rack.free == {"a": 1, "b": 2}
        assert on_boards.times_us(KERNELS, Effort()) == [0, 1, 2, 3, 4, 5]
    assert on_boards.times_us([], Effort()) == []


def test_the_others_time_the_kernels_of_a_lost_board(monkeypatch: pytest.MonkeyPatch) -> None:
    rack = _Rack({"a": 1, "b": 1}, lost_with=(KERNELS[0].symbol,))
    on_boards = _bench(rack, monkeypatch)
    for _ in range(2):
        assert on_boards.times_us(KERNELS, Effort()) == [0, 1, 2, 3, 4, 5]
    assert sum(rack.free.values()) == 1


def test_without_a_board_the_search_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    rack = _Rack({"a": 1, "b": 1}, lost_with=(KERNELS[0].symbol, KERNELS[0].symbol))
    with pytest.raises(BoardLostError, match="no board at a, b answers any more"):
        _bench(rack, monkeypatch).times_us(KERNELS, Effort())


@pytest.mark.slow
def test_kernels_are_tuned_on_two_boards_of_a_tracker_of_which_one_is_lost(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """TVM's own tracker and servers, on the loopback address; the same command then finds all it knows."""
    with tracker() as (host, port):
        servers = [
            rpc.Server("127.0.0.1", 9190, 9290, tracker_addr=(host, port), key="pi") for _ in "ab"
        ]
        while registered(f"{host}:{port}/pi") < len(servers):
            time.sleep(0.1)
        measurements, report = tmp_path / "m.jsonl", tmp_path / "tuned.json"
        command = [
            *("tune", "mlp", "--trials", "32", "--rpc", f"{host}:{port}/pi", "--json", str(report)),
            *("--database", str(tmp_path / "tuned"), "--cache", str(measurements)),
        ]
        pull = threading.Thread(target=pull_one_out, args=(servers[0], measurements), daemon=True)
        pull.start()
        try:
            assert run(command) == 0, capfd.readouterr().err
            pull.join()
            first = json.loads(report.read_text())["kernels"]
            assert {kernel["machine"] for kernel in first} == {f"boards behind {host}:{port}/pi"}
            assert not any(kernel["was_known"] for kernel in first)
            assert run(command) == 0, capfd.readouterr().err
            again = json.loads(report.read_text())["kernels"]
            assert [kernel["was_known"] for kernel in again[: len(first)]] == [True] * len(first)
        finally:
            for server in servers:
                with suppress(Exception):
                    server.terminate()
