"""Data from a Python function of the user."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from tvm_xengine.checks.regular_file import memory_bytes
from tvm_xengine.data.arrays import Data
from tvm_xengine.errors import InvalidDataError, XEngineError
from tvm_xengine.relax_ir.types import Array


def call_data_function(name: str) -> Data:
    """The data that ``package.module:function`` returns when called without arguments.

    It returns ``(x, y)``, a mapping from names to arrays, a pair of such mappings for training and
    validation, an iterable of batches (each ``(x, y)`` or a mapping) such as a generator or a
    PyTorch ``DataLoader``, or a `Data`. Batches are read once, until the iterable ends. The current
    folder is searched first. The function is the user's own code and runs with the user's rights.

    Raises
    ------
    InvalidDataError
        If there is no such function, it raises, or returns something else.
    """
    module_name, _, function_name = name.partition(":")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        made = getattr(importlib.import_module(module_name), function_name)()
        return _data(name, made)
    except XEngineError:
        raise
    except Exception as error:
        raise InvalidDataError(f"--data {name}: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(here)


def _data(name: str, made: object) -> Data:
    if isinstance(made, Data):
        return made
    if isinstance(made, tuple) and len(made) == 2 and all(isinstance(m, Mapping) for m in made):
        first, second = made
        return Data(_arrays(name, first), _arrays(name, second), name)
    found = _named(made)
    if found is not None:
        return Data(_arrays(name, found), source=name)
    if isinstance(made, Iterable) and not isinstance(made, str | bytes | np.ndarray | tuple):
        return Data(_joined(name, made), source=name)
    raise _unexpected(name, f"the function returned {type(made).__name__}")


def _named(made: object) -> Mapping[object, object] | None:
    """Arrays by name: a mapping, or the pair ``(x, y)``."""
    if isinstance(made, Mapping):
        return made
    if isinstance(made, tuple) and len(made) == 2 and all(np.ndim(m) for m in made):
        return {"x": made[0], "y": made[1]}
    return None


def _joined(name: str, batches: Iterable[object]) -> dict[str, Array]:
    """The arrays of all batches, one after the other."""
    parts: dict[str, list[Array]] = {}
    taken_bytes, most_bytes = 0, _most_bytes()
    for number, batch in enumerate(batches):
        found = _named(tuple(batch) if isinstance(batch, list) else batch)
        if found is None:
            raise _unexpected(name, f"batch {number} is a {type(batch).__name__}")
        arrays = _arrays(name, found)
        if number and set(arrays) != set(parts):
            raise _unexpected(name, f"batch {number} has {[*arrays]}, those before have {[*parts]}")
        for key, array in arrays.items():
            parts.setdefault(key, []).append(array)
            taken_bytes += array.nbytes
        if taken_bytes > most_bytes:
            raise InvalidDataError(
                f"--data {name}: after {number + 1} batches the data takes half of this machine's"
                " memory; batches must end, because all of them are kept"
            )
    if not parts:
        raise _unexpected(name, "there are no batches")
    return {key: np.concatenate(several) for key, several in parts.items()}


def _most_bytes() -> int:
    """Half of this machine's memory: batches are held once more while they are joined."""
    return memory_bytes() // 2


def _unexpected(name: str, found: str) -> InvalidDataError:
    return InvalidDataError(
        f"--data {name}: expected (x, y), a mapping from names to arrays, two of them for training"
        f" and validation, or batches; {found}"
    )


def _arrays(name: str, made: Mapping[object, object]) -> dict[str, Array]:
    arrays = {str(key): np.asarray(value) for key, value in made.items()}
    if bad := [key for key, array in arrays.items() if array.dtype.kind not in "fiub"]:
        raise InvalidDataError(
            f"--data {name}: expected arrays of numbers, but {bad} hold"
            f" {[str(arrays[key].dtype) for key in bad]}"
        )
    return arrays
