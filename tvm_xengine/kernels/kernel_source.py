"""Interfaces of kernel sources, and of sources that call a library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.kernels.library.call import LibraryCall

if TYPE_CHECKING:
    from tvm import tirx
    from tvm.target import Target

    from tvm_xengine.kernels.device_kernel import DeviceKernel
    from tvm_xengine.kernels.store.tuned import TunedSchedules


@runtime_checkable
class KernelSource(Protocol):
    """Prepares kernels for devices. It has no state: every user makes its own instance."""

    @property
    def name(self) -> str:
        """Name in a device's ``kernels``, in reports and in data sets."""
        ...

    def why_not(self, target: Target) -> str | None:
        """Why it has no kernels for a target on this machine; None when it has."""
        ...

    def prepare(
        self, func: tirx.PrimFunc, target: Target, name: str, tuned: TunedSchedules | None
    ) -> DeviceKernel | None:
        """The kernel for a target that :meth:`why_not` has no objection to.

        Parameters
        ----------
        func
            A function in destination-passing style. ``kernel_parts(func)`` says which named
            operations it is made of.
        name
            What the kernel is called in progress reports.
        tuned
            Schedules for generated loops.

        Returns
        -------
        None
            Where this source does not compute it; the device's next source is asked.
        """
        ...


class LibraryContext(Protocol):
    """Objects that a call needs at run time, created once when a kernel is loaded."""

    @property
    def words(self) -> NDArray[np.int64]:
        """The last argument of the compiled kernel; what its addresses point to lives as long."""
        ...


@runtime_checkable
class LibrarySource(KernelSource, Protocol):
    """A source whose kernels call a library (`DeviceKernel.library` describes the call)."""

    def load(self) -> None:
        """Make the library's functions visible to compiled kernels in this process.

        Raises
        ------
        LibraryError
            When the library is missing here.
        """
        ...

    def context(self, call: LibraryCall) -> LibraryContext:
        """What the compiled kernel of a call needs.

        Raises
        ------
        LibraryError
            When the library is missing here, or does not take the call.
        """
        ...
