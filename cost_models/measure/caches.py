"""The states of the caches in which a kernel is timed."""

from __future__ import annotations

COLD = "cold"
"""As a step leaves them for a kernel that fits the last level: what plans pay."""

MEMORY = "memory"
"""As a larger step leaves them, whose tensors come from memory."""

HOT = "hot"
"""As the kernel itself leaves them, called again and again."""

STATES = (COLD, MEMORY, HOT)
