"""Library objects of a compiled kernel, created once when the kernel is loaded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType

import tvm

from tvm_xengine.kernels.library.call import LibraryCall
from tvm_xengine.kernels.sources import library_source
from tvm_xengine.kernels.thread_pool import thread_pool_size


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


def while_kernels_run(contexts: Iterable[KernelContext]) -> AbstractContextManager[None]:
    """To be entered while kernels run, so that a library's threads leave the cores to generated code.

    It can be entered again. Entering takes a microsecond, and half a millisecond after a pause.
    """
    threaded = {c.library.name: c.library for c in contexts if c.threads > 1}
    return _All([library.while_running() for library in threaded.values()])


class _All:
    """Several context managers as one that can be entered as often as each of them."""

    def __init__(self, hooks: Sequence[AbstractContextManager[None]]) -> None:
        self._hooks = hooks

    def __enter__(self) -> None:
        thread_pool_size()  # TVM has a pool for each thread that runs kernels
        with ExitStack() as entered:
            for hook in self._hooks:
                entered.enter_context(hook)
            entered.pop_all()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with ExitStack() as entered:
            for hook in self._hooks:
                entered.push(hook)
