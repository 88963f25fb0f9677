"""The public interface is written down, typed and documented."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from numpydoc.validate import Validator, get_doc_object

from tests.api.signatures import PAGE, methods, page, public

_EXCEPTIONS = [
    item for _, item in public() if inspect.isclass(item) and issubclass(item, Exception)
]


def documented_names(item: Any) -> list[str]:
    """Names in the section Parameters, of dataclasses in the section Attributes."""
    doc = Validator(get_doc_object(item)).doc
    section = "Attributes" if is_dataclass(item) else "Parameters"
    return [name.strip() for entry in doc[section] for name in entry.name.split(",")]


def expected_names(item: Any) -> list[str]:
    """Names of parameters; of dataclasses those of the fields."""
    if is_dataclass(item):
        return [field.name for field in fields(item) if not field.name.startswith("_")]
    return [name for name in inspect.signature(item).parameters if name not in ("self", "cls")]


def functions() -> list[tuple[str, Callable[..., object]]]:
    """Every public function and method."""
    found: list[tuple[str, Callable[..., object]]] = []
    for name, item in public():
        if inspect.isclass(item):
            found += [(f"{name}.{method}", function) for method, _, function in methods(item)]
        else:
            found.append((name, item))
    return found


def test_the_page_of_signatures_is_the_public_interface() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.api.signatures"


@pytest.mark.parametrize(("name", "item"), public(), ids=[name for name, _ in public()])
def test_each_public_name_documents_exactly_its_parameters(name: str, item: Any) -> None:
    assert inspect.getdoc(item), f"{name} has no docstring"
    if item not in _EXCEPTIONS:
        assert documented_names(item) == expected_names(item)


@pytest.mark.parametrize(("name", "function"), functions(), ids=[name for name, _ in functions()])
def test_each_function_is_typed_and_what_it_documents_is_there(
    name: str, function: Callable[..., object]
) -> None:
    signature = inspect.signature(function)
    assert signature.return_annotation is not inspect.Signature.empty
    for parameter in signature.parameters.values():
        assert parameter.name in ("self", "cls") or parameter.annotation is not parameter.empty
    if documented := documented_names(function):
        assert documented == expected_names(function)
