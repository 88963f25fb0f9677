"""Every picture of a plan as files."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tvm_xengine.errors import MissingPackageError
from tvm_xengine.files.atomic_write import write_all_atomically
from tvm_xengine.report.figures import draw
from tvm_xengine.report.html.story import Story

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("pdf", "png", "svg")
"""Each picture is written in all of them."""
TIMELINE = "timeline.pdf"
"""Every plan has this one, so that it stands for all where a folder is checked."""
_DOTS_PER_INCH = 200
"""Of PNG: sharp on a screen and in a draft."""


def write_figures(story: Story, folder: Path) -> list[Path]:
    """Write every picture in every format into a folder, which is made if it is missing, or none.

    Raises
    ------
    MissingPackageError
        If matplotlib is not installed.
    """
    check_matplotlib()
    import matplotlib

    # Text stays text, which a paper's fonts and a search can use; equal plans give equal files.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "", "pdf.fonttype": 42}):
        pictures = {
            folder / f"{name}.{kind}": drawn(figure, kind)
            for name, figure in figures(story).items()
            for kind in FORMATS
        }
    write_all_atomically(pictures)
    return list(pictures)


def check_matplotlib() -> None:
    """Raise `MissingPackageError` where no picture can be drawn."""
    try:
        import matplotlib.figure  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            "pictures need matplotlib: pip install 'tvm-xengine[plot]'"
        ) from error


def figures(story: Story) -> Mapping[str, Figure]:
    """Every picture, by the name of its files."""
    found = {}
    for device in story.plan.problem.platform.devices:
        if story.live_bytes(device.name):
            name = re.sub(r"[^\w.-]", "_", device.name)
            found[f"memory_{name}"] = draw.memory_over_time(story, device.name)
            found[f"arena_{name}"] = draw.arena_map(story, device.name)
    return {**found, "timeline": draw.timeline(story)}


def drawn(figure: Figure, kind: str) -> bytes:
    """A picture as the bytes of a file, without the date."""
    out = io.BytesIO()
    undated = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
    figure.savefig(out, format=kind, dpi=_DOTS_PER_INCH, metadata=undated.get(kind))
    return out.getvalue()
