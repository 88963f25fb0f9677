"""What became of one sample of a database."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import Enum


class Status(str, Enum):
    """How a sample ended."""

    EQUAL = "equal"
    """Values and gradients are those of the database's own framework."""
    RANDOM = "random"
    """It ran; its values are random or undefined, so only shapes and types were compared."""
    REFUSED = "refused"
    """Our error names the operator and the reason."""
    NOT_EXPORTABLE = "not exportable"
    """The framework itself cannot run or export it."""
    DIFFERENT = "different"
    CRASHED = "crashed"
    """Another error than ours, a process that died, or no end."""


@dataclass(frozen=True)
class Verdict:
    """The verdict on one sample.

    Attributes
    ----------
    database, operator, sample
        Which sample; `sample` counts from zero in the order of the database.
    reason
        Why it was refused, how it differs or how it crashed.
    """

    database: str
    operator: str
    sample: int
    status: Status
    reason: str = ""

    def to_line(self) -> str:
        """One line of JSON."""
        return json.dumps({**asdict(self), "status": self.status.value})

    @staticmethod
    def from_line(line: str) -> Verdict:
        """The verdict that `to_line` wrote."""
        fields = json.loads(line)
        return Verdict(**{**fields, "status": Status(fields["status"])})
