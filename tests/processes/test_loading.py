"""While modules are loaded, nobody looks for garbage."""

import gc
import sys
from types import ModuleType

import pytest

from tvm_xengine.processes.loading import loading


@pytest.fixture
def frozen() -> list[str]:
    return []


@pytest.fixture(autouse=True)
def _nothing_stays_frozen(monkeypatch: pytest.MonkeyPatch, frozen: list[str]) -> None:
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append("frozen"))


def test_what_is_loaded_is_not_looked_at(
    monkeypatch: pytest.MonkeyPatch, frozen: list[str]
) -> None:
    with loading():
        assert not gc.isenabled()
        monkeypatch.setitem(sys.modules, "new", ModuleType("new"))
    assert gc.isenabled()
    assert frozen


def test_where_nothing_is_loaded_garbage_stays_garbage(frozen: list[str]) -> None:
    with pytest.raises(ImportError), loading():
        raise ImportError
    assert gc.isenabled()
    assert not frozen
