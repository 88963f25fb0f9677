"""The handwritten digits that ship inside scikit-learn, in the form that a network reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.errors import UnsupportedModelError

_TEST_SHARE = 0.2


@dataclass(frozen=True)
class Dataset:
    """Images with their classes, split once and for all into training and test.

    Attributes
    ----------
    train_images, test_images
        float32, shape (N, channels, height, width), mean 0 and variance 1 over the training set;
        or int64, shape (N, length), tokens.
    train_labels, test_labels
        int64, shape (N,), or a class for every pixel or token, shape (N, ...).
    """

    train_images: NDArray[np.float32 | np.int64]
    train_labels: NDArray[np.int64]
    test_images: NDArray[np.float32 | np.int64]
    test_labels: NDArray[np.int64]

    @property
    def num_classes(self) -> int:
        """Number of different labels."""
        return int(self.train_labels.max()) + 1

    def batches(
        self, batch_size: int, *, seed: int = 0
    ) -> Iterator[tuple[NDArray[np.float32 | np.int64], NDArray[np.int64]]]:
        """Full training batches without end, shuffled anew in each epoch; equal seed, equal batches."""
        if not 1 <= batch_size <= len(self.train_labels):
            raise ValueError(
                f"batch_size must be between 1 and {len(self.train_labels)}, got {batch_size}"
            )
        random = np.random.default_rng(seed)
        while True:
            order = random.permutation(len(self.train_labels))
            for start in range(0, len(order) - batch_size + 1, batch_size):
                chosen = order[start : start + batch_size]
                yield self.train_images[chosen], self.train_labels[chosen]

    def test_batches(
        self, batch_size: int
    ) -> Iterator[tuple[NDArray[np.float32 | np.int64], NDArray[np.int64], int]]:
        """All test images in order, as (images, labels, how many count).

        The last batch is filled up with its first image; only the leading ones count.
        """
        for start in range(0, len(self.test_labels), batch_size):
            images = self.test_images[start : start + batch_size]
            labels = self.test_labels[start : start + batch_size]
            missing = batch_size - len(labels)
            yield (
                np.concatenate([images, np.repeat(images[:1], missing, axis=0)]),
                np.concatenate([labels, np.repeat(labels[:1], missing)]),
                len(labels),
            )


def load_digits(image_shape: tuple[int, int, int], *, seed: int = 0) -> Dataset:
    """1,797 handwritten digits of 8 x 8 pixels, resized to (channels, height, width).

    Parameters
    ----------
    seed
        Chooses the fifth of the images that is kept for testing.
    """
    channels, height, width = image_shape
    train, test = _split_digits(seed)
    mean, deviation = train.pixels.mean(), train.pixels.std()

    def images(pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        resized = resize_bilinear((pixels - mean) / deviation, height, width)
        return np.repeat(resized[:, None], channels, axis=1)

    return Dataset(images(train.pixels), train.labels, images(test.pixels), test.labels)


def load_digit_masks(image_shape: tuple[int, int, int], *, seed: int = 0) -> Dataset:
    """The digits as a task of segmentation: class 1 where there is more ink than on average."""
    digits = load_digits(image_shape, seed=seed)
    return Dataset(
        digits.train_images,
        (digits.train_images[:, 0] > 0).astype("int64"),
        digits.test_images,
        (digits.test_images[:, 0] > 0).astype("int64"),
    )


def load_digit_tokens(length: int, *, seed: int = 0) -> Dataset:
    """The digits as texts: the first pixels, row by row, and for each pixel the one behind it.

    Pixels are numbers from 0 to 16; at most 63 of the 64 have one behind them.
    """
    if not 1 <= length <= 63:
        raise UnsupportedModelError(
            f"the digits are sequences of 1 to 63 pixels, the model reads {length}"
        )
    train, test = (part.pixels.reshape(-1, 64).astype("int64") for part in _split_digits(seed))
    here, behind = slice(0, length), slice(1, length + 1)
    return Dataset(train[:, here], train[:, behind], test[:, here], test[:, behind])


@dataclass(frozen=True)
class _Digits:
    """Images of shape (N, 8, 8) with values from 0 to 16, and their classes."""

    pixels: NDArray[np.float32]
    labels: NDArray[np.int64]


def _split_digits(seed: int) -> tuple[_Digits, _Digits]:
    """The digits for training and for testing."""
    try:
        from sklearn.datasets import load_digits as load
    except ImportError as error:
        raise UnsupportedModelError(
            "the digits data set needs scikit-learn: pip install 'tvm-xengine[data]'"
        ) from error
    digits = load()
    pixels = digits.images.astype("float32")
    labels = digits.target.astype("int64")
    order = np.random.default_rng(seed).permutation(len(pixels))
    test, train = np.split(order, [round(len(order) * _TEST_SHARE)])
    return _Digits(pixels[train], labels[train]), _Digits(pixels[test], labels[test])


def resize_bilinear(images: NDArray[np.float32], height: int, width: int) -> NDArray[np.float32]:
    """Images of shape (N, H, W) interpolated to (N, height, width), pixel centres aligned."""
    rows = _interpolation(images.shape[1], height)
    columns = _interpolation(images.shape[2], width)
    resized: NDArray[np.float32] = np.einsum(
        "ih,nhw,jw->nij", rows, images, columns, optimize=True
    ).astype("float32")
    return resized


def _interpolation(size: int, new_size: int) -> NDArray[np.float64]:
    """The matrix, shape (new_size, size), that interpolates a line of pixels."""
    centre = (np.arange(new_size) + 0.5) * size / new_size - 0.5
    centre = centre.clip(0, size - 1)
    left = np.floor(centre).astype(int).clip(0, max(size - 2, 0))
    share = centre - left
    matrix = np.zeros((new_size, size))
    matrix[np.arange(new_size), left] = 1 - share
    matrix[np.arange(new_size), np.minimum(left + 1, size - 1)] += share
    return matrix
