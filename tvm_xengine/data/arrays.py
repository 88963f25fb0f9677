"""Training data as named arrays, and the batches of an epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tvm_xengine.errors import InvalidDataError
from tvm_xengine.frontends.step_names import model_name, step_name
from tvm_xengine.relax_ir.types import Array

Batch = Mapping[str, Array]
"""Arrays of one batch, by the names of the step's inputs."""


@dataclass(frozen=True)
class Data:
    """Samples for training, and others for validation.

    Attributes
    ----------
    train, validation
        Arrays whose first axis counts the samples, by name; `validation` may be empty.
    source, validation_source
        Where they come from, as messages name it; without the second, both from the first.
    joined
        Names of arrays whose samples a batch joins: 16 of 8 labels are then 128 labels.
    classes
        Names of the classes that labels count, where the source names them.
    """

    train: Mapping[str, Array]
    validation: Mapping[str, Array] = field(default_factory=dict)
    source: str = "the data"
    joined: frozenset[str] = frozenset()
    validation_source: str = ""
    classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for source, part, arrays in self._parts:
            counts = {array.shape[:1] for array in arrays.values()}
            if len(counts) > 1 or () in counts:
                shapes = ", ".join(f"{name} {list(one.shape)}" for name, one in arrays.items())
                raise InvalidDataError(
                    f"{source}: every array must have one entry per sample on its first axis,"
                    f" but the {part} arrays have the shapes {shapes}"
                )
        if not self.train or not self.samples:
            raise InvalidDataError(f"{self.source}: expected at least one sample")
        if self.validation and set(self.validation) != set(self.train):
            raise InvalidDataError(
                f"{self.source}: training has the arrays {sorted(self.train)}, validation has"
                f" {sorted(self.validation)}"
            )

    def check_finite(self) -> None:
        """Refuse samples with NaN or infinity, which a guarded run would stop at.

        Raises
        ------
        InvalidDataError
            Names the array and the first such sample.
        """
        for source, part, arrays in self._parts:
            for name, array in arrays.items():
                if array.dtype.kind != "f" or (finite := np.isfinite(array)).all():
                    continue
                place = tuple(int(k) for k in np.argwhere(~finite)[0])
                raise InvalidDataError(
                    f"{source}: {name} holds {array[place]} in the {part} sample {place[0]}; mend or"
                    " leave out such samples"
                )

    @property
    def _parts(self) -> tuple[tuple[str, str, Mapping[str, Array]], ...]:
        """Source, name and arrays of each part."""
        return (
            (self.source, "training", self.train),
            (self.validation_source or self.source, "validation", self.validation),
        )

    @property
    def samples(self) -> int:
        """Number of training samples."""
        return len(next(iter(self.train.values())))

    def batches_per_epoch(self, batch_size: int) -> int:
        """Number of full batches in an epoch; the samples that are left over take part in others.

        Raises
        ------
        InvalidDataError
            If there are fewer samples than one batch holds.
        """
        if self.samples < batch_size:
            raise InvalidDataError(
                f"{self.source}: {self.samples} training samples do not fill one batch of"
                f" {batch_size}; give more samples or a smaller batch"
            )
        return self.samples // batch_size

    def epoch(self, number: int, batch_size: int, seed: int, start: int = 0) -> Iterator[Batch]:
        """The batches of one epoch from batch `start` on.

        The order depends on (seed, number) alone, so that a resumed run reads the same batches.
        """
        count = self.batches_per_epoch(batch_size)
        order = np.random.default_rng((seed, number)).permutation(self.samples)
        for k in range(start, count):
            chosen = order[k * batch_size : (k + 1) * batch_size]
            yield self._batch({name: array[chosen] for name, array in self.train.items()})

    def validation_batches(self, batch_size: int) -> Iterator[tuple[Batch, int]]:
        """All validation samples in order, with the number of leading samples that count.

        The last batch is filled up with its first sample.
        """
        total = len(next(iter(self.validation.values()))) if self.validation else 0
        for start in range(0, total, batch_size):
            part = {n: a[start : start + batch_size] for n, a in self.validation.items()}
            count = min(batch_size, total - start)
            missing = batch_size - count
            full = {n: np.concatenate([a, a[:1].repeat(missing, axis=0)]) for n, a in part.items()}
            yield self._batch(full), count

    def _batch(self, arrays: Batch) -> Batch:
        return {
            name: array.reshape(-1, *array.shape[2:]) if name in self.joined else array
            for name, array in arrays.items()
        }

    def with_validation(self, ratio: float, seed: int) -> Data:
        """The same samples with a share of them held out for validation, drawn at random."""
        held_out = round(self.samples * ratio)
        if not 0 < held_out < self.samples:
            raise InvalidDataError(
                f"{self.source}: a validation share of {ratio:g} leaves {self.samples - held_out} of"
                f" {self.samples} samples for training; expected a share between 0 and 1"
            )
        order = np.random.default_rng(seed).permutation(self.samples)
        validation, train = np.split(order, [held_out])
        return replace(
            self,
            train={name: array[np.sort(train)] for name, array in self.train.items()},
            validation={name: array[np.sort(validation)] for name, array in self.train.items()},
        )

    def renamed(self, inputs: Sequence[str], targets: Sequence[str]) -> Data:
        """The same arrays by the names of the step's inputs and targets.

        Names that agree stay. ``x`` stands for the only input and ``y`` for the only target;
        otherwise arrays that the step does not know are refused.

        Raises
        ------
        InvalidDataError
            If an array is missing or unknown; all names are listed.
        """
        wanted = [*inputs, *targets]
        names = {name: step_name(name, wanted) for name in self.train}
        if len(inputs) == 1 and "x" in names and "x" not in wanted:
            names["x"] = inputs[0]
        if len(targets) == 1 and "y" in names and "y" not in wanted:
            names["y"] = targets[0]
        if sorted(names.values()) != sorted(wanted):
            raise InvalidDataError(
                f"{self.source}: the model takes {', '.join(map(model_name, wanted))}; the data has"
                f" {', '.join(self.train)}; name the arrays like the model's inputs and targets, or"
                " `x` and `y` where there is one of each"
            )
        return replace(
            self,
            train={names[name]: array for name, array in self.train.items()},
            validation={names[name]: array for name, array in self.validation.items()},
        )
