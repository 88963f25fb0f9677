"""``python -m benchmarks.costs.calibrated``: what timing some kernels of a new processor is worth.

By the labels that ship: a model that knows the other processors is asked about one of them. Up to 400 of
that one's kernels calibrate the model: those of random networks where it is asked about the networks of
the zoo, and the other way round.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from benchmarks.record import record
from tvm_xengine.cost_models.calibration.calibrate import fit_machine
from tvm_xengine.cost_models.calibration.calibration import Calibration, Evidence
from tvm_xengine.cost_models.dataset.dataset import RANDOM, Dataset, DatasetFolder
from tvm_xengine.cost_models.labels.held_out import open_part
from tvm_xengine.cost_models.labels.shipped import make_shipped, shipped_folder
from tvm_xengine.cost_models.models.adapted import AdaptedTrees
from tvm_xengine.cost_models.models.card import library_vectors_bytes
from tvm_xengine.cost_models.models.model_file import PRIOR_MODEL, ModelFile, read_model
from tvm_xengine.cost_models.prediction.predict import architecture_of
from tvm_xengine.cost_models.prediction.prior import predicted_on

_MOST_KERNELS = 400
"""That calibrate; `costs calibrate` times some 500 in three minutes."""


@dataclass(frozen=True)
class Judged:
    """What a model says of a processor.

    Attributes
    ----------
    error_ratio, inside_ratio
        Median of |predicted / measured - 1|, and the share of measurements in intervals of 80 %.
    """

    kernels: int
    error_ratio: float
    inside_ratio: float


@cache
def labels() -> Dataset:
    """Those that ship and may be learned from."""
    make_shipped()
    return open_part(DatasetFolder(shipped_folder()).load())


@cache
def model_without(processor: str) -> ModelFile:
    """What the labels of all other processors teach."""
    data = labels()
    others = data.take([k for k, name in enumerate(data.processors) if name != processor])
    card = {
        "targets": dict(Counter(others.targets)),
        "library_vectors_bytes": library_vectors_bytes(others.table),
        "prior_targets": read_model(PRIOR_MODEL).card.get("targets", {}),
    }
    architectures = tuple(sorted({architecture_of(target) for target in set(others.targets)}))
    sources = tuple(sorted(set(others.sources)))
    return ModelFile(AdaptedTrees().fit(others), architectures, sources, card)


def judge(processor: str, *, is_random_known: bool) -> tuple[Judged, Judged, Judged]:
    """The model of other processors: as it is, with three numbers of this one, and with evidence."""
    data = labels()
    is_here = np.array([each == processor for each in data.processors])
    is_random = np.array([RANDOM in names for names in data.families])
    known = data.take(np.flatnonzero(is_here & (is_random == is_random_known))[:_MOST_KERNELS])
    asked = data.take(np.flatnonzero(is_here & (is_random != is_random_known)))
    model = model_without(processor)
    target = json.dumps({"kind": "llvm", "mcpu": processor})
    factor, cold, spread = fit_machine(
        model.predictor, model.share_on(target), known.table, known.time_us
    )
    numbers = Calibration("labels", processor, "", {}, factor, cold, spread, ())
    networks = {names: number for number, names in enumerate(dict.fromkeys(known.families))}
    evidence = Evidence.of(known.table, known.time_us, [networks[x] for x in known.families])

    def judged(found: Calibration | None) -> Judged:
        calibrated = replace(model, calibration=found)
        answer = predicted_on(calibrated, [target] * len(asked), asked.table)
        error = np.median(np.abs(answer.time_us / asked.time_us - 1))
        inside = np.mean((answer.lo_us <= asked.time_us) & (asked.time_us <= answer.hi_us))
        return Judged(len(asked), float(error), float(inside))

    return judged(None), judged(numbers), judged(replace(numbers, evidence=evidence))


def _rows() -> Iterator[dict[str, str | int]]:
    for processor in sorted(set(labels().processors)):
        for is_random_known in (True, False):
            steps = judge(processor, is_random_known=is_random_known)
            row: dict[str, str | int] = {
                "processor": processor,
                "asked about": "networks of the zoo" if is_random_known else "random networks",
                "kernels": steps[0].kernels,
            }
            for name, found in zip(("others", "numbers", "evidence"), steps, strict=True):
                row[f"{name} %"] = f"{100 * found.error_ratio:.1f}"
                row[f"{name} inside %"] = f"{100 * found.inside_ratio:.0f}"
            yield row


if __name__ == "__main__":
    for each in _rows():
        record("calibrated", each)
