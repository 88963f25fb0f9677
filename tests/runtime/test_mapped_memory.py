"""Memory that several processes see."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from tvm_xengine.runtime.events import can_overlap
from tvm_xengine.runtime.mapped_memory import MappedMemory

_WRITES = """
import mmap, os, sys
view = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 12)
view[4:8] = view[0:4]
"""


@pytest.mark.skipif(not can_overlap(), reason="memory without a file is one of Linux")
def test_another_process_writes_what_a_tensor_here_shows() -> None:
    memory = MappedMemory.create(12)
    memory.write(np.float32(1.5).tobytes())
    tensor = memory.tensor(4, (2,), "float32")
    subprocess.run([sys.executable, "-c", _WRITES, memory.place], check=True)
    assert tensor.numpy().tolist() == [1.5, 0.0]
    place = memory.place
    memory.close()
    with pytest.raises(OSError, match="No such file"):
        MappedMemory.open(place, 12)
