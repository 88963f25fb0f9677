from __future__ import annotations

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


def test_an_address_where_nobody_answers_is_an_error():
    with pytest.raises(MeasurementError, match=r"127\.0\.0\.1:1"):
        RpcTimer("127.0.0.1:1")
