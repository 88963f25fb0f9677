"""Functions are compiled whatever other threads do meanwhile."""

import builtins
import functools

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
