"""Every number that a module or a group of options holds says what it is for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("tvm_xengine", "passes", "cost_models")
MODULES = sorted(
    path
    for room in ROOMS
    for path in (ROOT / room).rglob("*.py")
    if not (
        path.relative_to(ROOT).parts[0] == "tvm_xengine"
        and {"passes", "cost_models"} & {*path.relative_to(ROOT).parts}
    )
)
LITERALS = (
    ast.Constant,
    ast.UnaryOp,
    ast.BinOp,
    ast.Tuple,
    ast.operator,
    ast.unaryop,
    ast.expr_context,
)


def is_number(node: ast.AST) -> bool:
    """Whether a value is a number, or a tuple or a dict of numbers."""
    if isinstance(node, ast.Dict):
        return bool(node.values) and all(map(is_number, node.values))
    if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("np."):
        return len(node.args) == 1 and is_number(node.args[0])
    numbers = [
        part.value
        for part in ast.walk(node)
        if isinstance(part, ast.Constant) and not isinstance(part.value, bool)
    ]
    return (
        bool(numbers)
        and all(isinstance(number, (int, float)) for number in numbers)
        and all(isinstance(part, LITERALS) for part in ast.walk(node))
    )


def assigned(node: ast.stmt) -> list[str]:
    """The names in capitals to which a statement assigns numbers."""
    if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
        return []
    if not is_number(node.value):
        return []
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    names = [part.id for part in ast.walk(target) if isinstance(part, ast.Name)]
    return [name for name in names if re.fullmatch(r"_*[A-Z][A-Z0-9_]*", name)]


def is_docstring(node: ast.stmt | None) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def unexplained(path: Path) -> Iterator[str]:
    """Constants without a comment on the line, above the adjoining lines or after them."""
    text = path.read_text(encoding="utf-8")
    lines, body = text.splitlines(), ast.parse(text).body
    silent: list[str] = []
    is_headed = False
    for before, node, after in zip((None, *body), body, (*body[1:], None), strict=False):
        names = assigned(node)
        if not names:
            continue
        if not (adjoin(before, node) and before is not None and assigned(before)):
            silent, is_headed = [], lines[max(0, node.lineno - 2)].strip().startswith("#")
        if "#" not in "".join(lines[node.lineno - 1 : node.end_lineno]):
            silent.append(f"{path.relative_to(ROOT)}:{node.lineno}: {', '.join(names)}")
        is_last = not (adjoin(node, after) and after is not None and assigned(after))
        if is_last and not is_headed and not is_docstring(after):
            yield from silent


def adjoin(one: ast.stmt | None, other: ast.stmt | None) -> bool:
    """Whether two statements stand on consecutive lines."""
    return one is not None and other is not None and other.lineno == (one.end_lineno or 0) + 1


def options(path: Path) -> Iterator[str]:
    """Numeric defaults of dataclasses whose docstring does not name the field."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ClassDef):
            continue
        if not any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list):
            continue
        said = ast.get_docstring(node) or ""
        for field, following in zip(node.body, (*node.body[1:], None), strict=True):
            if (
                not isinstance(field, ast.AnnAssign)
                or field.value is None
                or not is_number(field.value)
            ):
                continue
            name = ast.unparse(field.target)
            if isinstance(field.value, ast.Constant) and field.value.value in (0, 1, -1):
                continue  # nothing, all, and the last: no choice of a size
            if not re.search(rf"\b{name}\b", said) and not is_docstring(following):
                yield f"{path.relative_to(ROOT)}:{field.lineno}: {node.name}.{name}"


def test_every_constant_has_its_reason() -> None:
    assert [where for path in MODULES for where in unexplained(path)] == []


def test_every_default_of_an_option_is_explained() -> None:
    assert [where for path in MODULES for where in options(path)] == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("_SHARE = 0.5\n", 1),
        ("_SHARE = 0.5  # of the time\n", 0),
        ('_SHARE = 0.5\n"""Of the time."""\n', 0),
        ("# Of the time.\n_A = 1\n_B = 2\n", 0),
        ('_A = 1\n_B = (2, 3)\n"""Both."""\n', 0),
        ("_A = 1  # one\n_B = 2\n\n_C = 3\n", 2),
        ("_NAMES = ('a', 'b')\n_SIZE = {'a': 4}\n", 1),
    ],
)
def test_a_constant_without_a_reason_is_found(
    text: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.test_constants.ROOT", tmp_path)
    (tmp_path / "module.py").write_text(text)
    assert len([*unexplained(tmp_path / "module.py")]) == count
