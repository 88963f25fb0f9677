"""Writes docs/api_signatures.md: every public name with its typed signature.

Run ``python -m tests.api.signatures`` after a change of the public interface.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any

import tvm_xengine as xe

PAGE = Path(__file__).parents[2] / "docs" / "api_signatures.md"

_WIDTH = 96
"""Longer signatures have one parameter per line; methods are indented by four more."""

_HEAD = """\
# Signatures of the library

Every name of `tvm_xengine.__all__`. `help(tvm_xengine.compile)` explains the parameters.
<!-- This page is written by `python -m tests.api.signatures`. -->

```pyi
"""


def page() -> str:
    """The page as it should be."""
    functions = [_function(name, item) for name, item in public() if not inspect.isclass(item)]
    classes = [_class(name, item) for name, item in public() if inspect.isclass(item)]
    return _HEAD + "\n".join(functions) + "\n\n" + "\n\n".join(classes) + "\n```\n"


def public() -> list[tuple[str, Any]]:
    """Names and objects, functions first."""
    items = [(name, getattr(xe, name)) for name in xe.__all__]
    return sorted(items, key=lambda item: (inspect.isclass(item[1]), item[0]))


def methods(kind: type) -> Iterator[tuple[str, str, Callable[..., object]]]:
    """Name, decorator and function of public methods and properties, inherited ones included."""
    own = [base for base in kind.__mro__ if base.__module__.startswith("tvm_xengine")]
    for name in dict.fromkeys(name for base in own for name in vars(base)):
        found = inspect.getattr_static(kind, name)
        if name.startswith("_") and name != "__call__":
            continue
        if isinstance(found, property) and found.fget is not None:
            yield name, "@property\n", found.fget
        elif isinstance(found, classmethod | staticmethod):
            yield name, f"@{type(found).__name__}\n", found.__func__
        elif inspect.isfunction(found):
            yield name, "", found


def _class(name: str, kind: type) -> str:
    bases = [base.__name__ for base in kind.__bases__ if base is not object]
    lines = [f"class {name}({', '.join(bases)}):" if bases else f"class {name}:"]
    if is_dataclass(kind):
        lines += [_field(one) for one in fields(kind) if not one.name.startswith("_")]
    elif inspect.isfunction(kind.__init__):
        lines.append(_indented(_function("__init__", kind.__init__)))
    lines += [
        _indented(decorator + _function(method, function))
        for method, decorator, function in methods(kind)
    ]
    return "\n".join(lines) if len(lines) > 1 else f"{lines[0]} ..."


def _field(field: Field[Any]) -> str:
    default = ""
    if field.default is not MISSING:
        default = f" = {_quoted(field.default)}"
    elif field.default_factory is not MISSING:
        default = f" = {_quoted(field.default_factory())}"
    return f"    {field.name}: {field.type}{default}"


def _function(name: str, function: Callable[..., object]) -> str:
    signature = inspect.signature(function)
    parts = [_parameter(parameter) for parameter in signature.parameters.values()]
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    only = inspect.Parameter.KEYWORD_ONLY
    if only in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        parts.insert(kinds.index(only), "*")
    line = f"def {name}({', '.join(parts)}) -> {signature.return_annotation}: ..."
    if len(line) <= _WIDTH:
        return line
    inner = "".join(f"    {part},\n" for part in parts)
    return f"def {name}(\n{inner}) -> {signature.return_annotation}: ..."


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    if parameter.annotation is parameter.empty:
        return f"{stars}{parameter.name}"
    default = "" if parameter.default is parameter.empty else f" = {_quoted(parameter.default)}"
    return f"{stars}{parameter.name}: {parameter.annotation}{default}"


def _quoted(value: object) -> str:
    return repr(value).replace("'", '"')


def _indented(text: str) -> str:
    return textwrap.indent(text, "    ")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
