"""Functions are compiled whatever other threads do meanwhile."""

import builtins
import functools
from pathlib import Path

import numba
import pytest

from tvm_xengine.scheduling.compiled import compiled


def larger(number: int) -> int:
    return max(0, number)


def clipped(number: int) -> int:
    return max(0, min(number, 10))


def test_a_function_is_compiled_while_torch_export_replaces_builtins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # numba learns the builtins when it compiles its first function.
    assert compiled(larger)(3) == 3
    function = compiled(clipped)
    monkeypatch.setattr(builtins, "max", functools.partial(max))
    monkeypatch.setattr(builtins, "min", functools.partial(min))
    assert [function(number) for number in (-3, 4, 30)] == [0, 4, 10]


def test_a_function_is_compiled_once_for_all_constants_that_it_is_called_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # What an earlier run left beside the sources would not be compiled.
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    once = compiled(larger)

    def several(number: int) -> int:
        return once(1) + once(2) + once(number)

    assert compiled(several)(3) == 6
    assert len(once.signatures) == 1  # type: ignore[attr-defined]
