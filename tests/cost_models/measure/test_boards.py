"""Boards share the kernels of their address; where one is lost, the others do its part."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tvm import rpc
from tvm.target import Target

from tests.kernels.kernels import BASELINE, matmul, scale_and_shift
from tvm_xengine.commands.process import run
from tvm_xengine.cost_models.measure import boards
from tvm_xengine.cost_models.measure.boards import measure_on_boards
from tvm_xengine.cost_models.measure.machine import Machine
from tvm_xengine.cost_models.measure.measurements import MeasurementCache
from tvm_xengine.cost_models.measure.rpc_timer import boards_at
from tvm_xengine.cost_models.measure.this_machine import device_fingerprint, remote_machine
from tvm_xengine.cost_models.measure.timing import Effort
from tvm_xengine.errors import BoardLostError, MeasurementError
from tvm_xengine.kernels.device_kernel import DeviceKernel, prepare_kernel
from tvm_xengine.kernels.store.kernel_store import OnProgress
from tvm_xengine.kernels.targets import resolve_target

KERNELS = [
    prepare_kernel(func, resolve_target(BASELINE))
    for func in (
        *(scale_and_shift(size) for size in range(8, 24)),
        *(matmul(n, n, n) for n in (8, 16)),
    )
]  # one board takes 16 at a time
QUICK = Effort(rounds=2)


class _Rack:
    """Boards that need no hardware, of which some are lost with some kernels."""

    def __init__(self, counts: dict[str, int], lost_with: dict[str, int]) -> None:
        self.counts, self._lost_with = counts, dict(lost_with)
        self.timed: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.used: Counter[str] = Counter()

    def time(self, board: str, kernel: DeviceKernel) -> tuple[float, ...]:
        with self._lock:
            if self._lost_with.get(kernel.symbol, 0):
                self._lost_with[kernel.symbol] -= 1
                raise BoardLostError(f"{board} is lost")
            self.timed[kernel.symbol] += 1
            self.used[board] += 1
        return (2.0, 1.0)

    def connected(self, address: str, _compiling: object) -> _RackTimer:
        with self._lock:
            self.counts[address] -= 1
            return _RackTimer(self, address, f"{address}#{self.counts[address]}")


class _RackTimer:
    def __init__(self, rack: _Rack, address: str, board: str) -> None:
        self._rack, self._address, self._board = rack, address, board

    def device(self, target: Target) -> str:
        return device_fingerprint(target, remote_machine(target, self._address))

    def machine(self, target: Target) -> Machine:
        return remote_machine(target, self._address, self._board)

    def clock(self, kernel: DeviceKernel) -> str:
        return "wall"

    def prepare(self, kernels: Sequence[DeviceKernel], on_compiled: OnProgress | None) -> None:
        pass

    def time_us(self, kernel: DeviceKernel, effort: Effort) -> tuple[float, ...]:
        return self._rack.time(self._board, kernel)

    def sentinel(self) -> None:
        return None

    def close(self) -> None:
        pass


@pytest.fixture
def cache(tmp_path: Path) -> MeasurementCache:
    return MeasurementCache(tmp_path / "m.jsonl")


@contextmanager
def _rack(counts: dict[str, int], lost_with: dict[str, int] | None = None) -> Iterator[_Rack]:
    rack = _Rack(dict(counts), lost_with or {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boards, "boards_at", counts.__getitem__)
        patch.setattr(boards, "RpcTimer", rack.connected)
        yield rack


def _failed(cache: MeasurementCache, address: str) -> list[str]:
    target = KERNELS[0].target
    device = device_fingerprint(target, remote_machine(target, address))
    return [k.symbol for k in KERNELS if cache.find_failure(k.key, device) is not None]


def test_each_address_measures_its_kernels_and_results_name_their_boards(
    cache: MeasurementCache,
) -> None:
    with _rack({"a:1": 1, "b:1/pi": 2}) as rack:
        found = measure_on_boards({"a:1": KERNELS[:3], "b:1/pi": KERNELS}, cache, effort=QUICK)
    assert set(found["a:1"]) == {kernel.symbol for kernel in KERNELS[:3]}
    assert set(found["b:1/pi"]) == {kernel.symbol for kernel in KERNELS}
    assert sum(rack.timed.values()) == 2 * (len(KERNELS) + 3)
    machines = [cache.find_machine(one.machine) for one in found["b:1/pi"].values()]
    assert {machine and machine.processor for machine in machines} <= {
        f"b:1/pi#{board} behind b:1/pi" for board in range(-2, 2)
    }


def test_the_other_boards_do_the_part_of_one_that_is_lost_and_no_kernel_is_blamed(
    cache: MeasurementCache,
) -> None:
    with _rack({"b:1/pi": 2}, {KERNELS[1].symbol: 1}):
        found = measure_on_boards({"b:1/pi": KERNELS}, cache, effort=QUICK)
    assert set(found["b:1/pi"]) == {kernel.symbol for kernel in KERNELS}
    assert _failed(cache, "b:1/pi") == []


def test_a_kernel_with_which_two_boards_are_lost_is_blamed(cache: MeasurementCache) -> None:
    with _rack({"b:1/pi": 3}, {KERNELS[1].symbol: 2}):
        found = measure_on_boards({"b:1/pi": KERNELS}, cache, effort=QUICK)
    assert set(found["b:1/pi"]) == {k.symbol for k in KERNELS if k is not KERNELS[1]}
    assert _failed(cache, "b:1/pi") == [KERNELS[1].symbol]


def test_without_boards_the_work_ends_and_the_same_call_goes_on(cache: MeasurementCache) -> None:
    with _rack({"a:1": 1}, {KERNELS[5].symbol: 1}), pytest.raises(BoardLostError):
        measure_on_boards({"a:1": KERNELS}, cache, effort=QUICK)
    assert _failed(cache, "a:1") == [KERNELS[5].symbol]
    with _rack({"a:1": 1}) as rack:
        measure_on_boards({"a:1": KERNELS}, cache, effort=QUICK)
    assert rack.timed[KERNELS[0].symbol] == 1  # of two rounds the other one is known
    assert rack.timed[KERNELS[6].symbol] == 2


@pytest.mark.slow
def test_a_dataset_is_collected_on_two_boards_of_a_tracker_of_which_one_is_lost(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """TVM's own tracker and servers, on the loopback address; both share this machine's cores."""
    with tracker() as address:
        servers = [
            rpc.Server("127.0.0.1", 9190, 9290, tracker_addr=address, key="pi") for _ in "ab"
        ]
        host, port = address
        while registered(f"{host}:{port}/pi") < len(servers):
            time.sleep(0.1)
        arguments = [
            *("costs", "collect", "--dataset", str(tmp_path / "kernels"), "--kernels", "40"),
            *("--networks", "mlp", "--rounds", "1", "--targets", BASELINE),
            *("--rpc", f"{host}:{port}/pi"),
        ]
        measurements = tmp_path / "kernels" / "measurements.jsonl"
        pull = threading.Thread(target=pull_one_out, args=(servers[0], measurements), daemon=True)
        pull.start()
        try:
            assert run(arguments) == 0, capfd.readouterr().err
            pull.join()
            rows = [json.loads(line) for line in measurements.read_text().splitlines()]
            assert not [row for row in rows if "failed" in row]
            assert len({(row["kernel"], row["device"]) for row in rows if "kernel" in row}) >= 40
            machines = [row["processor"] for row in rows if "processor" in row]
            assert any(f"behind {host}:{port}/pi" in machine for machine in machines)
        finally:
            for server in servers:
                with suppress(Exception):
                    server.terminate()


@contextmanager
def tracker() -> Iterator[tuple[str, int]]:
    program = (
        "from tvm.rpc.tracker import Tracker; import time;"
        " tracker = Tracker('127.0.0.1', 9290, 9390); print(tracker.port, flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            yield "127.0.0.1", int(process.stdout.readline())
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def registered(address: str) -> int:
    try:
        return boards_at(address)
    except MeasurementError:
        return 0


def pull_one_out(server: rpc.Server, measurements: Path) -> None:
    """End a server, and the sessions with it, once something is measured."""
    while not measurements.exists() or '"rounds_us"' not in measurements.read_text():
        time.sleep(0.05)
    pid = server.proc._proc.pid
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    sessions = [int(child) for each in lists for child in each.read_text().split()]
    for process in (pid, *sessions):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
