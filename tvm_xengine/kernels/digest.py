"""Short keys for named facts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping


def digest(facts: Mapping[str, str]) -> str:
    """A short key for named facts."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
