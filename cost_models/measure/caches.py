"""The states of the caches in which a kernel is timed."""

from __future__ import annotations

COLD = "cold"
"""As a step leaves them for a kernel: what plans pay."""

HOT = "hot"
"""As the kernel itself leaves them, called again and again."""
