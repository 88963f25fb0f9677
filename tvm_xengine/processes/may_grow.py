"""Settings of worker processes."""

from __future__ import annotations

from collections.abc import Mapping

MAY_GROW: Mapping[str, str] = {"LOKY_MAX_MEMORY_LEAK_SIZE": "1e12"}
"""For the environment of loky's workers. By default it starts another one when a worker has grown by 300 MB,
as one does that loads the libraries and the context of a GPU, again and again."""
