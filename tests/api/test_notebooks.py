"""The notebooks of the examples run from top to bottom."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(FOLDER.glob("*/*.ipynb"))


def code_of(notebook: Path) -> list[str]:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_holds_no_output_and_compiles(notebook: Path) -> None:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") for cell in cells)
    assert [compile(code, notebook.name, "exec") for code in code_of(notebook)]


@pytest.mark.slow
def test_a_new_feature_lowers_the_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sklearn")
    module = ModuleType("new_feature")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for code in code_of(FOLDER / "cost_model" / "new_feature.ipynb"):
        exec(compile(code, "new_feature.ipynb", "exec", dont_inherit=True), vars(module))
    assert module.enriched < 0.95 * module.plain
    assert "inside" in capsys.readouterr().out
