"""What a compiled kernel needs of a library, made once when the kernel is loaded."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

import tvm

from tvm_xengine.kernels.library.call import LibraryCall
from tvm_xengine.kernels.onednn.context import OnednnContext
from tvm_xengine.kernels.onednn.library import load_onednn


class KernelContext:
    """The last argument of a kernel that calls a library; it must outlive the kernel's calls.

    Parameters
    ----------
    call
        What the library computes in the kernel.

    Raises
    ------
    LibraryError
        When the library is missing here, or no longer takes the call.

    Attributes
    ----------
    tensor
        The argument.
    threads
        Number of threads that the library computes on.
    """

    def __init__(self, call: LibraryCall) -> None:
        self._live = OnednnContext(call)
        self.threads = call.threads
        self.tensor = tvm.runtime.tensor(self._live.words)


def while_kernels_run(contexts: Iterable[KernelContext]) -> AbstractContextManager[None]:
    """To be entered while kernels run, so that a library's threads leave the cores to generated code.

    Entering takes a microsecond, and half a millisecond after a pause.
    """
    if all(context.threads == 1 for context in contexts):
        return nullcontext()
    return load_onednn().sleeping_threads
