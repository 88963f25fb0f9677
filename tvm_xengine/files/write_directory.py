"""A directory that is there whole or not at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from tvm_xengine.errors import ExportError


def check_free(directory: Path, *, force: bool) -> None:
    """Refuse a directory that exists, unless it may be replaced.

    Raises
    ------
    ExportError
        If it exists and `force` is false, or is no directory.
    """
    if directory.is_symlink() or (directory.exists() and not directory.is_dir()):
        raise ExportError(f"{directory} is there and is no directory; choose another one")
    if directory.exists() and not force:
        raise ExportError(f"{directory} exists; give --force to replace it")


def write_directory(directory: Path, write: Callable[[Path], None], *, force: bool = False) -> None:
    """Let `write` fill a directory, then give it its name; a failure leaves nothing behind.

    Raises
    ------
    ExportError
        As `check_free`.
    """
    check_free(directory, force=force)
    directory.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=directory.parent, prefix=f".{directory.name}."))
    try:
        write(temporary)
        temporary.chmod(0o755)
        check_free(directory, force=force)
        if directory.exists():
            old = Path(tempfile.mkdtemp(dir=directory.parent, prefix=f".{directory.name}.old."))
            directory.replace(old)
            temporary.replace(directory)
            shutil.rmtree(old)
        else:
            temporary.replace(directory)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
