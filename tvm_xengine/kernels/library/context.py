"""Library objects of a compiled kernel, created once when the kernel is loaded."""

from __future__ import annotations

import tvm

from tvm_xengine.kernels.library.call import LibraryCall
from tvm_xengine.kernels.sources import library_source


class KernelContext:
    """The last argument of a kernel that calls a library; it must outlive the kernel's calls.

    Parameters
    ----------
    call
        What the library computes in the kernel.

    Raises
    ------
    LibraryError
        When the library is missing here, or does not take the call.

    Attributes
    ----------
    tensor
        The argument.
    threads
        Number of threads that the library computes on.
    """

    def __init__(self, call: LibraryCall) -> None:
        self.library = library_source(call.source)
        self._live = self.library.context(call)
        self.threads = call.threads
        self.tensor = tvm.runtime.tensor(self._live.words)
