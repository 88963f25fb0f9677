"""What is no file to read: devices and pipes, which have no end, and files that fit no memory."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from tvm_xengine.errors import IrregularFileError

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFIFO: "a pipe; write it to a file first",
    stat.S_IFSOCK: "a socket",
}


def require_regular_file(path: Path, most_bytes: int | None = None) -> None:
    """Refuse a path that cannot be read to its end; every file that a user names is checked before.

    Parameters
    ----------
    most_bytes
        What such a file has at most; this machine's memory where it is None.

    Raises
    ------
    IrregularFileError
        If the path is something else, or the file is larger.
    OSError
        If there is no file, or the system does not say what it is.
    """
    found = path.stat()
    if kind := _KINDS.get(stat.S_IFMT(found.st_mode)):
        number = errno.EISDIR if stat.S_ISDIR(found.st_mode) else errno.EINVAL
        raise IrregularFileError(number, f"expected a regular file, found {kind}", str(path))
    limit_bytes = memory_bytes() if most_bytes is None else most_bytes
    if found.st_size > limit_bytes:
        memory = "this machine's memory of " if most_bytes is None else ""
        raise IrregularFileError(
            errno.EFBIG,
            f"expected at most {memory}{limit_bytes} bytes, found {found.st_size}",
            str(path),
        )


def memory_bytes() -> int:
    """Memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
