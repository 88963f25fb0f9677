"""What a compiled kernel needs of a library, made once when the kernel is loaded."""

from __future__ import annotations

import tvm

from tvm_xengine.libraries.library_call import LibraryCall
from tvm_xengine.libraries.onednn.context import OnednnContext


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
    """

    def __init__(self, call: LibraryCall) -> None:
        self._live = OnednnContext(call)
        self.tensor = tvm.runtime.tensor(self._live.words)
