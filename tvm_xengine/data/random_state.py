"""The generators that loaders of data shuffle with: their state as text, and back."""

from __future__ import annotations

import base64
import random
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np


def read_random_state() -> dict[str, Any]:
    """State of the generators of Python, of numpy and, where it is loaded, of PyTorch, for JSON."""
    version, words, gauss = random.getstate()
    legacy = np.random.get_state(legacy=True)  # noqa: NPY002  (users' code draws from it)
    assert isinstance(legacy, tuple)  # what `legacy` asks for
    name, keys, *rest = legacy
    state: dict[str, Any] = {
        "python": [version, _encoded(np.array(words, np.uint32)), gauss],
        "numpy": [name, _encoded(np.asarray(keys, np.uint32)), *rest],
    }
    if (torch := sys.modules.get("torch")) is not None:
        state["torch"] = _encoded(torch.get_rng_state().numpy())
    return state


def set_random_state(state: Mapping[str, Any]) -> None:
    """Set the generators whose state was read.

    Raises
    ------
    ValueError
        If it is none that `read_random_state` has made.
    """
    try:
        if "python" in state:
            version, words, gauss = state["python"]
            random.setstate((version, tuple(map(int, _decoded(words, np.uint32))), gauss))
        if "numpy" in state:
            name, keys, *rest = state["numpy"]
            np.random.set_state((name, _decoded(keys, np.uint32), *rest))  # noqa: NPY002
        if "torch" in state and (torch := sys.modules.get("torch")) is not None:
            torch.set_rng_state(torch.from_numpy(_decoded(state["torch"], np.uint8)))
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"the state of a random generator is damaged: {error}") from error


def _encoded(array: np.ndarray[Any, Any]) -> str:
    return base64.b64encode(array.tobytes()).decode()


def _decoded(text: str, dtype: type[np.generic]) -> np.ndarray[Any, Any]:
    return np.frombuffer(base64.b64decode(text, validate=True), dtype).copy()
