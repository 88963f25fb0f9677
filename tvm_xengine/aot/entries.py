"""The functions of a package that compute: its entry points."""

from __future__ import annotations

from enum import Enum

from tvm_xengine.errors import ExportError


class Entry(Enum):
    """A function of a package that computes, by its name in C."""

    TRAIN_STEP = "train_step"
    ACCUMULATE = "accumulate"
    APPLY = "apply"
    EVAL = "eval"
    INFER = "infer"

    @property
    def purpose(self) -> str:
        """The first sentence of its documentation."""
        return _PURPOSES[self]

    @property
    def learns(self) -> bool:
        """Whether it computes gradients of a batch, so that its inputs are guarded."""
        return self in (Entry.TRAIN_STEP, Entry.ACCUMULATE)

    @property
    def takes_one_sample(self) -> bool:
        """Whether it takes a single sample, whatever the batch of training is."""
        return self in (Entry.ACCUMULATE, Entry.INFER)


_PURPOSES = {
    Entry.TRAIN_STEP: "One training step: forward, backward, and an update of the state.",
    Entry.ACCUMULATE: "Adds the gradients of one sample to the sums, of which apply makes one update.",
    Entry.APPLY: "One update of the state by the mean gradient of the accumulated samples.",
    Entry.EVAL: "The forward pass on a batch, as it is used after training.",
    Entry.INFER: "The forward pass on one sample, as it is used after training.",
}

USUAL = (Entry.TRAIN_STEP, Entry.EVAL)
"""What a package has unless others are chosen."""


def chosen_entries(names: tuple[str, ...]) -> tuple[Entry, ...]:
    """The entry points called `names`, in the order of a package; the usual ones for no names.

    Raises
    ------
    ExportError
        If there is no entry point of a name, or one of ``accumulate`` and ``apply`` alone.
    """
    known = {entry.value: entry for entry in Entry}
    if unknown := [name for name in names if name not in known]:
        raise ExportError(
            f"unknown entry point {unknown[0]!r} among the entries; expected one of {', '.join(known)}"
        )
    chosen = {known[name] for name in names} or set(USUAL)
    pair = {Entry.ACCUMULATE, Entry.APPLY}
    if len(pair & chosen) == 1:
        raise ExportError(
            "accumulate adds up gradients and apply makes an update of them: choose both or none"
        )
    return tuple(entry for entry in Entry if entry in chosen)
