"""The Python interface and the README of a library for TVM's virtual machine."""

from __future__ import annotations

import tvm

from tvm_xengine.aot.vm_library.layout import Library


def python_loader(library: Library) -> str:
    """The text of ``<name>_step.py``: the same for Python with numpy and apache-tvm."""
    return _PYTHON.format(name=library.name)


_PYTHON = '''\
"""{name}: a training step for TVM's virtual machine. Needs numpy and apache-tvm."""

import json
from pathlib import Path

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

HERE = Path(__file__).parent


class Step:
    """The step on an arena of its own; `state()` is all there is to keep."""

    def __init__(self):
        self.about = json.loads((HERE / "{name}.json").read_text())
        size = self.about["arena_bytes"]
        memory = np.zeros(size + 64, np.uint8)
        start = -memory.ctypes.data % 64
        self.arena = memory[start : start + size]
        self.machine = relax.VirtualMachine(tvm.runtime.load_module(str(HERE / "{name}.so")), tvm.cpu())
        self.load((HERE / "{name}_state.bin").read_bytes())
        self._views = {{
            name: [tvm_ffi.from_dlpack(self.array(view)) for view in self.about[f"{{name}}_views"]]
            for name in ("train", "eval")
        }}

    def array(self, view):
        """The tensor at a place in the arena."""
        dtype = np.dtype(view["dtype"])
        count = int(np.prod(view["shape"], dtype=np.int64))
        place = slice(view["offset_bytes"], view["offset_bytes"] + count * dtype.itemsize)
        return self.arena[place].view(dtype).reshape(view["shape"])

    def train(self, **inputs):
        """Take one step; returns the results by name."""
        for name, value in inputs.items():
            self.array(self.about["inputs"][name])[...] = value
        self.machine["train_step"](*self._views["train"])
        return {{name: self.array(view).copy() for name, view in self.about["results"].items()}}

    def eval(self, **inputs):
        """What the network makes of a batch."""
        for name, value in inputs.items():
            self.array(self.about["eval_inputs"][name])[...] = value
        self.machine["eval"](*self._views["eval"])
        return self.array(self.about["output"]).copy()

    def state(self):
        """The state as bytes."""
        return self.arena[: self.about["state_bytes"]].tobytes()

    def load(self, state):
        """Go on from what `state` returned."""
        if len(state) != self.about["state_bytes"]:
            raise ValueError(f"expected {{self.about['state_bytes']}} bytes, got {{len(state)}}")
        self.arena[: len(state)] = np.frombuffer(state, np.uint8)
'''


def readme(library: Library, keep_all_bytes: int) -> str:
    """The text of the directory's README.md."""
    name = library.name
    return f"""\
# {name}

A training step as a library for the virtual machine of TVM {tvm.__version__} on {library.target}, made by
tvm-xengine. It runs in one arena of {library.arena_bytes} bytes, of which the first {library.state_bytes} are
the state; keeping every tensor would take {keep_all_bytes}. Nothing else is allocated during a step.

- `{name}.so`: machine code and virtual-machine code of `train_step` and `eval`
- `{name}.h`, `{name}.c`: open it from C; `{name}_step.py`: from Python
- `{name}_state.bin`: the state that training starts from; write the state bytes of the arena to keep
  what was learned
- `{name}.json`: where every tensor lies

    pip install apache-tvm=={tvm.__version__}    # has libtvm_runtime.so; apache-tvm-ffi has libtvm_ffi.so
    cc -std=c11 {name}_selftest.c {name}.c -I$FFI/include -L$TVM/lib -L$FFI/lib \\
      -Wl,--no-as-needed -ltvm_runtime -ltvm_ffi -o selftest
    ./selftest {name}.so {name}_state.bin

where `$TVM` and `$FFI` are the folders of the Python packages `tvm` and `tvm_ffi`.
"""
