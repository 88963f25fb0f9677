"""Folders of images, one subfolder per class."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.checks.regular_file import require_regular_file
from tvm_xengine.data.arrays import Data
from tvm_xengine.errors import InvalidDataError, MissingPackageError

_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".ppm")


def read_images(folder: Path, image_shape: tuple[int, int, int]) -> Data:
    """The images of a folder, resized to (channels, height, width) and scaled to [0, 1].

    Each subfolder is a class; classes are numbered in the order of their names. With subfolders
    ``train`` and ``validation`` (or ``val``), those hold the classes.

    Raises
    ------
    InvalidDataError
        If there are no images, a class has none, or one cannot be read; it is named.
    """
    parts = {path.name: path for path in sorted(folder.iterdir()) if path.is_dir()}
    held_out = parts.get("validation", parts.get("val"))
    train = parts.get("train", folder)
    classes = _classes(train)
    x, y = _read(train, classes, image_shape, must_have_all=True)
    if held_out is None or train is folder:
        return Data({"x": x, "y": y}, source=str(folder))
    if unknown := sorted(set(_classes(held_out)) - set(classes)):
        raise InvalidDataError(f"{held_out}: the classes {unknown} are not among those of {train}")
    x_held, y_held = _read(held_out, classes, image_shape, must_have_all=False)
    return Data({"x": x, "y": y}, {"x": x_held, "y": y_held}, str(folder))


def _classes(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_dir())


def _read(
    folder: Path,
    classes: list[str],
    image_shape: tuple[int, int, int],
    *,
    must_have_all: bool,
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
    seen = {label for _, label in found}
    if empty := [name for label, name in enumerate(classes) if label not in seen and must_have_all]:
        raise InvalidDataError(
            f"{folder}: the classes {empty} have no images ({', '.join(_SUFFIXES)}); remove their"
            " folders, or add images"
        )
    images = np.stack([_image(path, image_shape) for path, _ in found])
    return images, np.array([label for _, label in found], np.int64)


def _image(path: Path, shape: tuple[int, int, int]) -> NDArray[np.float32]:
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingPackageError(
            "folders of images need Pillow: pip install 'tvm-xengine[data]'"
        ) from error
    channels, height, width = shape
    if channels not in (1, 3):
        raise InvalidDataError(f"{path}: images have 1 or 3 channels, the model takes {channels}")
    try:
        require_regular_file(path)
        with Image.open(path) as image:
            resized = image.convert("L" if channels == 1 else "RGB").resize((width, height))
    except Exception as error:  # Pillow's decoders raise SyntaxError, struct.error and others
        raise InvalidDataError(f"{path} is no readable image: {error}") from error
    pixels = np.asarray(resized, np.float32).reshape(height, width, channels) / 255.0
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))
