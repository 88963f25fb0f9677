"""Devices whose kernels cannot run as they are described are refused before anything is planned."""

import pytest

from tvm_xengine.compiler.prepared import PreparedKernels
from tvm_xengine.errors import InvalidPlatformError
from tvm_xengine.scheduling.platform import Device, Platform


@pytest.mark.parametrize(("threads", "cores"), [(2, (0,)), (4, (0, 1, 3))])
def test_more_threads_than_cores_are_refused(threads: int, cores: tuple[int, ...]) -> None:
    device = Device("fast", f"llvm -num-cores={threads}", cores=cores)
    with pytest.raises(InvalidPlatformError, match=rf"fast: its target has {threads} threads"):
        PreparedKernels(Platform((device,)))


@pytest.mark.parametrize(
    "device",
    [
        Device("one", "llvm", cores=(0,)),
        Device("two", "llvm -num-cores=2", cores=(0, 1)),
        Device("any", "llvm -num-cores=4"),
    ],
)
def test_as_many_cores_or_none_are_right(device: Device) -> None:
    PreparedKernels(Platform((device,)))
