"""The handwritten digits of scikit-learn, in the form that a network reads: images, masks or tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.data.arrays import Data
from tvm_xengine.errors import InvalidDataError, MissingPackageError
from tvm_xengine.relax_ir.types import Array

_VALIDATION_RATIO = 0.2
"""A fifth is held out, as is usual for sets of this size."""


def load_digits(image_shape: tuple[int, int, int]) -> Data:
    """1,797 handwritten digits of 8 x 8 pixels, resized to (channels, height, width)."""
    channels, height, width = image_shape
    train, test = _split_digits()
    mean, deviation = train.pixels.mean(), train.pixels.std()

    def images(pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        resized = resize_bilinear((pixels - mean) / deviation, height, width)
        return np.repeat(resized[:, None], channels, axis=1)

    return _data(images(train.pixels), train.labels, images(test.pixels), test.labels)


def load_digit_masks(image_shape: tuple[int, int, int]) -> Data:
    """The digits as a task of segmentation: class 1 where there is more ink than on average."""
    digits = load_digits(image_shape)
    train, validation = (
        {"x": part["x"], "y": (np.asarray(part["x"], np.float32)[:, 0] > 0).astype("int64")}
        for part in (digits.train, digits.validation)
    )
    return Data(train, validation, digits.source)


def load_digit_tokens(length: int) -> Data:
    """The digits as texts: the first pixels, row by row, and for each pixel the one behind it.

    Pixels are numbers from 0 to 16; at most 63 of the 64 have one behind them.
    """
    if not 1 <= length <= 63:
        raise InvalidDataError(
            f"the digits are sequences of 1 to 63 pixels, the model reads {length}"
        )
    train, test = (part.pixels.reshape(-1, 64).astype("int64") for part in _split_digits())
    here, behind = slice(0, length), slice(1, length + 1)
    return _data(train[:, here], train[:, behind], test[:, here], test[:, behind])


def _data(x: Array, y: Array, x_held_out: Array, y_held_out: Array) -> Data:
    return Data({"x": x, "y": y}, {"x": x_held_out, "y": y_held_out}, "the digits of scikit-learn")


@dataclass(frozen=True)
class _Digits:
    """Images of shape (N, 8, 8) with values from 0 to 16, and their classes."""

    pixels: NDArray[np.float32]
    labels: NDArray[np.int64]


def _split_digits() -> tuple[_Digits, _Digits]:
    """The digits for training and for testing."""
    try:
        from sklearn.datasets import load_digits as load
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            "the digits data set needs scikit-learn: pip install 'tvm-xengine[data]'"
        ) from error
    digits = load()
    pixels = digits.images.astype("float32")
    labels = digits.target.astype("int64")
    order = np.random.default_rng(0).permutation(len(pixels))
    test, train = np.split(order, [round(len(order) * _VALIDATION_RATIO)])
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
