"""The site builds without a warning, and its catalogue holds what the sources raise."""

from __future__ import annotations

import html
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("furo", reason="needs the extra docs")
    pytest.importorskip("myst_parser", reason="needs the extra docs")
    target = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    ended = subprocess.run(
        [*build, "-d", str(target / "doctrees"), str(ROOT / "docs"), str(target / "html")],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return target / "html"


@pytest.mark.slow
def test_every_public_name_is_in_the_reference(site: Path) -> None:
    import tvm_xengine as xe

    text = (site / "reference" / "api.html").read_text(encoding="utf-8")
    assert [name for name in xe.__all__ if f'id="tvm_xengine.{name}"' not in text] == []


@pytest.mark.slow
def test_every_class_of_error_is_in_the_catalogue_with_its_messages(site: Path) -> None:
    from tvm_xengine import errors

    text = (site / "reference" / "errors.html").read_text(encoding="utf-8")
    words = html.unescape(text)
    names = [name for name in vars(errors) if name.endswith("Error") and name != "XEngineError"]
    assert [name for name in names if f'id="{name.lower()}"' not in text] == []
    for kind in (getattr(errors, name) for name in names):
        meaning, advice = (inspect.getdoc(kind) or "").split("\n\n")[:2]
        assert meaning.rstrip(".") in words
        assert " ".join(advice.split())[:25].replace("`", "") in words
    assert "cannot read platform file …: there is no such file" in text
    assert text.count("<li><p>") > 200
