"""Folders of images, one subfolder per class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.checks.regular_file import require_regular_file
from tvm_xengine.data.arrays import Data
from tvm_xengine.errors import InvalidDataError, MissingPackageError

_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".ppm")


def read_images(
    folder: Path, image_shape: tuple[int, int, int], classes: Sequence[str] = ()
) -> Data:
    """The images of a folder, resized to (channels, height, width) and scaled to [0, 1].

    Each subfolder is a class. With subfolders ``train`` and ``validation`` (or ``val``), those hold the
    classes.

    Parameters
    ----------
    classes
        By their numbers; without, those of the folder are numbered in the order of their names.

    Raises
    ------
    InvalidDataError
        If there are no images, a class of the folder has none or is not among those that are given, or
        an image cannot be read; it is named.
    """
    parts = {path.name: path for path in sorted(folder.iterdir()) if path.is_dir()}
    held_out = parts.get("validation", parts.get("val"))
    train = parts.get("train", folder)
    found = _classes(train)
    classes = tuple(classes or found)
    _refuse_unknown(train, found, classes)
    x, y = _read(train, classes, image_shape, must_have=found)
    data = Data({"x": x, "y": y}, source=str(folder), classes=classes)
    if held_out is None or train is folder:
        return data
    _refuse_unknown(held_out, _classes(held_out), classes)
    x_held, y_held = _read(held_out, classes, image_shape)
    return replace(data, validation={"x": x_held, "y": y_held})


def _classes(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_dir())


def _refuse_unknown(folder: Path, found: Sequence[str], classes: Sequence[str]) -> None:
    if unknown := sorted(set(found) - set(classes)):
        raise InvalidDataError(
            f"{folder}: the classes {unknown} are not among those of the training samples,"
            f" {list(classes)}"
        )


def _read(
    folder: Path,
    classes: Sequence[str],
    image_shape: tuple[int, int, int],
    must_have: Sequence[str] = (),
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    found = [
        (path, label)
        for label, name in enumerate(classes)
        if (folder / name).is_dir()
        for path in sorted((folder / name).iterdir())
        if path.suffix.lower() in _SUFFIXES
    ]
    if not found:
        raise InvalidDataError(
            f"{folder}: expected one subfolder per class with images in it ({', '.join(_SUFFIXES)}),"
            " found none"
        )
    seen = {classes[label] for _, label in found}
    if empty := [name for name in must_have if name not in seen]:
        raise InvalidDataError(
            f"{folder}: the classes {empty} have no images ({', '.join(_SUFFIXES)}); remove their"
            " folders, or add images"
        )
    images = np.stack([_image(path, image_shape) for path, _ in found])
    return images, np.array([label for _, label in found], np.int64)


def _image(path: Path, shape: tuple[int, int, int]) -> NDArray[np.float32]:
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            "folders of images need Pillow: pip install 'tvm-xengine[data]'"
        ) from error
    channels, height, width = shape
    if channels not in (1, 3):
        raise InvalidDataError(f"{path}: images have 1 or 3 channels, the model takes {channels}")
    try:
        require_regular_file(path)
        with Image.open(path) as image:
            pixels: Image.Image = image
            if image.mode.startswith("I"):  # 16 bits; `convert` cuts off what 8 do not hold
                pixels = Image.fromarray(np.rint(np.asarray(image) / 257).astype(np.uint8))
            resized = pixels.convert("L" if channels == 1 else "RGB").resize((width, height))
    except Exception as error:  # Pillow's decoders raise SyntaxError, struct.error and others
        raise InvalidDataError(f"{path} is no readable image: {error}") from error
    array = np.asarray(resized, np.float32).reshape(height, width, channels) / 255.0
    return np.ascontiguousarray(array.transpose(2, 0, 1))
