"""The processes of a run, and messages between them over torch.distributed."""

from __future__ import annotations

import atexit
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_xengine.cluster.attendance import Attendance
from tvm_xengine.errors import (
    InvalidPlatformError,
    MissingPackageError,
    RankLostError,
    RendezvousError,
)
from tvm_xengine.processes.launched import RENDEZVOUS
from tvm_xengine.scheduling.platform import Platform

if TYPE_CHECKING:
    import torch

TIMEOUT = "TVM_XENGINE_RANK_TIMEOUT_S"
"""Environment variable with the seconds after which a process that does not answer is given up."""
TIMEOUT_S = 60.0
"""Without that variable: longer than a step of a large network, and shorter than a user's patience."""


class Message:
    """A tensor on its way between two processes."""

    def __init__(self, work: Any, peer: int) -> None:
        self._work = work
        self._peer = peer

    def finish(self) -> None:
        """Wait until the tensor has arrived, or has been taken.

        Raises
        ------
        RankLostError
            If the other process has ended, or does not answer in time.
        """
        with naming_rank(self._peer):
            self._work.wait()


class Ranks:
    """The processes that hold the devices of a platform, of which this is one.

    All of them run the same program and make the same calls in the same order. Methods that say
    "collective" must be called by all.

    Parameters
    ----------
    group
        A process group of torch with the backend gloo.
    store
        Of torch.distributed, for these processes alone.
    timeout_s
        How long a process may be silent.

    Attributes
    ----------
    rank
        Number of this process.
    size
        Number of processes.
    writes_files
        Whether this process writes files: the first one of each host does.
    """

    def __init__(self, group: Any, store: Any, timeout_s: float) -> None:
        self.rank, self.size = int(group.rank()), int(group.size())
        self.writes_files = int(os.environ.get("LOCAL_RANK", self.rank)) == 0
        self._group = group
        self._attendance = Attendance(store, self.rank, self.size, timeout_s)

    @classmethod
    def join(cls, platform: Platform) -> Ranks | None:
        """The processes of this run; None where the platform lies in one, or this is no such run.

        Under ``torchrun`` or ``tvm-xengine launch`` it waits until all processes have joined. A
        process group that a program has made is used as it is.

        Raises
        ------
        InvalidPlatformError
            If the run has another number of processes than the platform.
        MissingPackageError
            If torch is not installed.
        RendezvousError
            If the processes do not find each other.
        """
        if platform.ranks == 1 or not _is_launched():
            return None
        try:
            import torch.distributed as dist
        except ModuleNotFoundError as error:
            raise MissingPackageError(
                "devices in several processes need torch: pip install 'tvm-xengine[torch]'"
            ) from error
        timeout_s = float(os.environ.get(TIMEOUT, TIMEOUT_S))
        if not dist.is_initialized():
            size = int(os.environ.get("WORLD_SIZE", "0"))
            _check_size(platform, size)
            file = os.environ.get(RENDEZVOUS)
            with _naming_rendezvous(size, file):
                dist.init_process_group(
                    "gloo",
                    init_method="env://" if file is None else f"file://{file}",
                    rank=int(os.environ["RANK"]),
                    world_size=size,
                    timeout=timedelta(seconds=max(timeout_s, TIMEOUT_S)),
                )
            # Else the threads of its groups are destroyed with the interpreter, some while they run.
            atexit.register(dist.destroy_process_group)
        _check_size(platform, dist.get_world_size())
        with naming_rank(None):
            group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_s))
            store = dist.distributed_c10d._get_default_store()
            # A program may join several times.
            ranks = cls(group, dist.PrefixStore(group.group_name, store), timeout_s)
        atexit.register(ranks.close)
        return ranks

    def close(self) -> None:
        """End what runs beside the program; the others take this process for lost after the time limit."""
        self._attendance.close()

    @property
    def leads(self) -> bool:
        """Whether this process plans, and speaks with the user."""
        return self.rank == 0

    def send(self, tensor: torch.Tensor, peer: int, tag: int) -> Message:
        """Begin to send a tensor in memory of the processor."""
        with naming_rank(peer):
            return Message(self._group.send([tensor], peer, tag), peer)

    def receive(self, tensor: torch.Tensor, peer: int, tag: int) -> Message:
        """Begin to receive into a tensor in memory of the processor."""
        with naming_rank(peer):
            return Message(self._group.recv([tensor], peer, tag), peer)

    def share(self, tensor: torch.Tensor, owner: int) -> None:
        """Collective: give every process the tensor of the owner."""
        with self._naming(owner if owner != self.rank else None):
            self._group.broadcast(tensor, owner).wait()

    def least(self, number: int) -> int:
        """Collective: the least number of all processes."""
        import torch
        from torch.distributed import ReduceOp

        value = torch.tensor([number])
        with self._naming(None):
            self._group.allreduce(value, ReduceOp.MIN).wait()
        return int(value)

    def meet(self) -> None:
        """Collective: wait for all processes, as long as it takes."""
        self._attendance.meet()

    def watching(self, release: Callable[[], None]) -> AbstractContextManager[None]:
        """See :meth:`Attendance.watching`."""
        return self._attendance.watching(release)

    def _naming(self, peer: int | None) -> AbstractContextManager[None]:
        """`naming_rank`; where the other process is not known, the one that gives no sign of life."""
        return naming_rank(peer, lambda: self._attendance.silent)

    @contextmanager
    def failing_together(self) -> Iterator[None]:
        """Let what fails inside end the others' wait for this process, with the same error and its reason.

        The next call that waits for all, of processes that have not failed, raises it.
        """
        try:
            yield
        except RankLostError:
            raise
        except Exception as error:
            self._attendance.fail(error)
            raise

    def share_text(self, text: str, owner: int = 0) -> str:
        """Collective: the owner's text; it is waited for as long as the owner takes."""
        import torch

        content = torch.from_numpy(np.frombuffer(text.encode(), "uint8").copy())
        length = torch.tensor([len(content)])
        self.meet()
        self.share(length, owner)
        if owner != self.rank:
            content = torch.empty(int(length), dtype=torch.uint8)
        self.share(content, owner)
        return str(content.numpy().tobytes(), "utf-8")

    def gather_texts(self, text: str) -> Sequence[str]:
        """Collective: the text of each process."""
        return [self.share_text(text, owner) for owner in range(self.size)]


@contextmanager
def naming_rank(peer: int | None, find: Callable[[], int | None] = lambda: None) -> Iterator[None]:
    """Raise `RankLostError` where the transport fails.

    Parameters
    ----------
    peer
        The other process, if it is known.
    find
        Asked for it else.
    """
    try:
        yield
    except RuntimeError as error:
        lost = find() if peer is None else peer
        other = "another rank" if lost is None else f"rank {lost}"
        raise RankLostError(
            f"{other} has ended or does not answer ({_reason(error)}); its own message says why. Resume"
            " from the last checkpoint"
        ) from error


@contextmanager
def _naming_rendezvous(size: int, file: str | None) -> Iterator[None]:
    """Say where the processes have not found each other, and at once where that is no place."""
    host, port = (os.environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT"))
    where = f"MASTER_ADDR={host} MASTER_PORT={port}" if file is None else file
    if file is None:
        try:
            socket.getaddrinfo(host or None, int(port))
        except (OSError, ValueError) as error:
            raise RendezvousError(
                f"{where} is no place where {size} processes can meet ({error}): expected the name or address"
                " of the host of rank 0, and a port that is free there; torchrun sets both"
            ) from error
    try:
        yield
    except RuntimeError as error:
        raise RendezvousError(
            f"{size} processes have not found each other at {where} ({_reason(error)}): start all of them"
            " with the same place, which all of them reach; on the host of rank 0 its port must be free"
        ) from error


def _reason(error: Exception) -> str:
    """What torch says, without where in its code."""
    return " ".join(str(error).split()).rpartition("] ")[2][:200]


def _is_launched() -> bool:
    """Whether this process is one of several."""
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        return True
    import sys

    dist: Any = sys.modules.get("torch.distributed")
    if dist is None:
        return False
    return bool(dist.is_available() and dist.is_initialized())


def _check_size(platform: Platform, size: int) -> None:
    """Refuse another number of processes; where hosts are named, who is missing is found by name later."""
    if size != platform.ranks and not platform.hosts:
        raise InvalidPlatformError(
            f"the platform has devices on {platform.ranks} ranks, and the run has {size} processes;"
            f" start {platform.ranks}"
        )
