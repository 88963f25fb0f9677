"""Data from a Python function of the user."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tvm_xengine.data.arrays import Data
from tvm_xengine.errors import InvalidDataError, XEngineError
from tvm_xengine.relax_ir.types import Array


def call_data_function(name: str) -> Data:
    """The data that ``package.module:function`` returns when called without arguments.

    It returns ``(x, y)``, a mapping from names to arrays, a pair of such mappings for training and
    validation, or a `Data`. The current folder is searched first. The function is the user's own
    code and runs with the user's rights.

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
    except XEngineError:
        raise
    except Exception as error:
        raise InvalidDataError(f"--data {name}: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(here)
    if isinstance(made, Data):
        return made
    if isinstance(made, Mapping):
        return Data(_arrays(name, made), source=name)
    if isinstance(made, tuple) and len(made) == 2:
        first, second = made
        if isinstance(first, Mapping) and isinstance(second, Mapping):
            return Data(_arrays(name, first), _arrays(name, second), name)
        return Data(_arrays(name, {"x": first, "y": second}), source=name)
    raise InvalidDataError(
        f"--data {name}: expected (x, y), a mapping from names to arrays, or two of them for training"
        f" and validation; the function returned {type(made).__name__}"
    )


def _arrays(name: str, made: Mapping[object, object]) -> dict[str, Array]:
    arrays = {str(key): np.asarray(value) for key, value in made.items()}
    if bad := [key for key, array in arrays.items() if array.dtype.kind not in "fiub"]:
        raise InvalidDataError(
            f"--data {name}: expected arrays of numbers, but {bad} hold"
            f" {[str(arrays[key].dtype) for key in bad]}"
        )
    return arrays
