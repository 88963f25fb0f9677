"""The last validation batch is filled up, whatever the samples and labels look like."""

import numpy as np
import pytest

from tvm_xengine.data.arrays import Data

COUNT = 37
LABELS = {
    "a class for each sample": np.arange(COUNT),
    "a class for each token": np.arange(COUNT * 5).reshape(COUNT, 5),
    "a class for each pixel": np.arange(COUNT * 6).reshape(COUNT, 2, 3),
}


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("batch_size", [1, 5, 36, 37, 38, 100])
def test_batches_are_full_and_count_every_sample_once(kind: str, batch_size: int) -> None:
    samples = {"x": np.arange(COUNT * 4).reshape(COUNT, 4), "labels": LABELS[kind]}
    seen = []
    for batch, count in Data(samples, samples).validation_batches(batch_size):
        assert all(len(array) == batch_size for array in batch.values())
        seen.append(batch["labels"][:count])
    assert np.array_equal(np.concatenate(seen), LABELS[kind])
