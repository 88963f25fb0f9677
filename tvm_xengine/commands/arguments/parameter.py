"""Options as Cyclopts 5 describes them, also where an older Cyclopts runs, and how the help shows them.

Cyclopts 5 needs Python 3.11. On Python 3.10 the help shows plain placeholders, and nothing completes names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cyclopts
from cyclopts import Parameter
from cyclopts.help import DefaultFormatter

if TYPE_CHECKING:
    from cyclopts.help import HelpPanel
    from rich.console import Console, ConsoleOptions

HAS_COMPLETERS = int(cyclopts.__version__.partition(".")[0]) >= 5
"""Whether this Cyclopts knows placeholders (``metavar``) and completers."""


def shown_as(placeholder: str, **options: Any) -> Parameter:
    """A parameter whose values the help calls `placeholder`; `options` are those of Cyclopts."""
    described = {"metavar": placeholder, **options}
    if not HAS_COMPLETERS:
        described = {k: v for k, v in described.items() if k not in ("metavar", "completer")}
    return Parameter(**described)


class FilledHelp(DefaultFormatter):
    """Help in lines as long as the terminal is wide, not as those of a docstring."""

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        for entry in panel.entries:
            text = getattr(entry.description, "primary_renderable", None)
            if text is not None and hasattr(text, "plain"):
                text.plain = " ".join(text.plain.split())
        super().__call__(console, options, panel)
