"""The directive ``error-catalogue``: every message that the sources raise, by class of error."""

from __future__ import annotations

import ast
import inspect
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import tvm_xengine
from tvm_xengine import errors

PACKAGE = Path(tvm_xengine.__file__).parent
HOLE = "…"
"""Stands where a message names what was found."""


class ErrorCatalogue(SphinxDirective):
    """One section per class of error; its rows are the messages and the modules that raise them."""

    def run(self) -> list[nodes.Node]:
        """Make the sections."""
        messages = messages_by_class()
        sections: list[nodes.Node] = []
        for name, kind in error_classes().items():
            section = nodes.section(ids=[nodes.make_id(name)])
            section += nodes.title(text=name)
            for paragraph in paragraphs(kind):
                section += nodes.paragraph(text=paragraph)
            if messages[name]:
                items = nodes.bullet_list()
                for message, module in messages[name]:
                    text = nodes.paragraph(text=f"{message} ")
                    text += nodes.literal(text=module)
                    items += nodes.list_item("", text)
                section += items
            sections.append(section)
        return sections


def error_classes() -> dict[str, type[Exception]]:
    """The classes of `tvm_xengine.errors`, by name, in the order of the module."""
    return {
        name: kind
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and issubclass(kind, errors.XEngineError)
    }


def paragraphs(kind: type[Exception]) -> list[str]:
    """What a class means, and what to do; without its attributes."""
    found = (inspect.getdoc(kind) or "").partition("\n\nAttributes\n")[0].split("\n\n")
    return [" ".join(one.split()).replace("`", "") for one in found]


def messages_by_class() -> dict[str, list[tuple[str, str]]]:
    """For each class of error, its messages with the module that raises them."""
    known = error_classes()
    found: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for path in sources(PACKAGE):
        module = path.relative_to(PACKAGE).with_suffix("").as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                name = ast.unparse(node.exc.func).rpartition(".")[2]
                message = _template(node.exc.args[0]) if node.exc.args else ""
                if name in known and any(letter.isalpha() for letter in message):
                    found[name].add((message, module))
    return {name: sorted(found[name]) for name in known}


def sources(folder: Path) -> Iterator[Path]:
    """Every module below a folder; `rglob` would leave out what lies behind links to folders."""
    for entry in sorted(folder.iterdir()):
        if entry.is_dir():
            yield from sources(entry)
        elif entry.suffix == ".py":
            yield entry


def _template(node: ast.expr) -> str:
    """The text of a message, with a hole for each value; empty if it is made elsewhere."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else HOLE for part in node.values
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return (_template(node.left) or HOLE) + (_template(node.right) or HOLE)
    if isinstance(node, ast.IfExp):
        return _template(node.body) or _template(node.orelse)
    return ""


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("error-catalogue", ErrorCatalogue)
    return {"parallel_read_safe": True}
