"""Options as Cyclopts 5 describes them, also where an older Cyclopts runs.

Cyclopts 5 needs Python 3.11. On Python 3.10 the help shows plain placeholders, and nothing completes names.
"""

from __future__ import annotations

from typing import Any

import cyclopts
from cyclopts import Parameter

HAS_COMPLETERS = int(cyclopts.__version__.partition(".")[0]) >= 5
"""Whether this Cyclopts knows placeholders (``metavar``) and completers."""


def shown_as(placeholder: str, **options: Any) -> Parameter:
    """A parameter whose values the help calls `placeholder`; `options` are those of Cyclopts."""
    described = {"metavar": placeholder, **options}
    if not HAS_COMPLETERS:
        described = {k: v for k, v in described.items() if k not in ("metavar", "completer")}
    return Parameter(**described)
