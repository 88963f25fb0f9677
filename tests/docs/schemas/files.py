"""The files of docs/reference/schemas."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from tests.docs.schemas.formats import FORMATS
from tests.docs.schemas.from_types import Schema
from tests.docs.schemas.reports import REPORTS

FOLDER = Path(__file__).parents[3] / "docs" / "reference" / "schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"


@cache
def schemas() -> dict[str, Schema]:
    """Every schema, by the name of its format or command."""
    return {
        name: {"$schema": DIALECT, "title": one.title.replace("`", ""), **one.make()}
        for name, one in {**FORMATS, **REPORTS}.items()
    }


def texts() -> dict[str, str]:
    """What the files hold, by their names."""
    return {
        f"{name}.schema.json": json.dumps(one, indent=1) + "\n" for name, one in schemas().items()
    }
