"""The weights of ONNX's operator Resize along one axis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.errors import UnsupportedModelError

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Interpolation:
    """How an axis is resized.

    Attributes
    ----------
    mode
        ``nearest``, ``linear`` or ``cubic``.
    coordinates
        ONNX's ``coordinate_transformation_mode``.
    rounding
        ONNX's ``nearest_mode``.
    cubic_a
        The coefficient of the cubic kernel.
    excludes_outside
        Whether elements outside the axis have no weight; else the outermost ones stand for them.
    antialias
        Whether the kernel is stretched where the axis becomes shorter.
    """

    mode: str
    coordinates: str
    rounding: str
    cubic_a: float
    excludes_outside: bool
    antialias: bool

    def weights(
        self, extent: int, size: int, scale: float, roi: tuple[float, float]
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """What each old element adds to each new one, and which new ones lie inside the axis.

        Returns
        -------
        Weights of shape (extent, size), and flags of shape (size,).
        """
        at = self._places(extent, size, scale, roi)
        inside = (at >= 0) & (at <= extent - 1)
        made = np.zeros((extent, size))
        column = np.arange(size)
        if self.mode == "nearest":
            made[np.clip(self._rounded(at), 0, extent - 1), column] = 1
            return made, inside
        base = np.floor(at).astype(int)
        for tap, weight in self._taps(at - base, scale):
            place = base + tap
            if self.excludes_outside:
                weight = np.where((place >= 0) & (place < extent), weight, 0)
            np.add.at(made, (np.clip(place, 0, extent - 1), column), weight)
        return made / made.sum(axis=0), inside

    def _places(self, extent: int, size: int, scale: float, roi: tuple[float, float]) -> Floats:
        """Where the new elements lie among the old ones."""
        k = np.arange(size, dtype=np.float64)
        match self.coordinates:
            case "half_pixel":
                return (k + 0.5) / scale - 0.5
            case "half_pixel_symmetric":
                offset = extent / 2 * (1 - size / (scale * extent))
                return offset + (k + 0.5) / scale - 0.5
            case "pytorch_half_pixel":
                return (k + 0.5) / scale - 0.5 if size > 1 else 0 * k
            case "tf_half_pixel_for_nn":
                return (k + 0.5) / scale
            case "align_corners":
                last = scale * extent - 1
                return k * (extent - 1) / last if last > 0 else 0 * k
            case "asymmetric":
                return k / scale
            case "tf_crop_and_resize":
                if size == 1:
                    return k + 0.5 * sum(roi) * (extent - 1)
                return roi[0] * (extent - 1) + k * (roi[1] - roi[0]) * (extent - 1) / (size - 1)
        raise UnsupportedModelError(f"coordinates {self.coordinates!r}")

    def _rounded(self, at: Floats) -> NDArray[np.int64]:
        rounded = {
            "round_prefer_floor": np.ceil(at - 0.5),
            "round_prefer_ceil": np.floor(at + 0.5),
            "floor": np.floor(at),
            "ceil": np.ceil(at),
        }
        if self.rounding not in rounded:
            raise UnsupportedModelError(f"rounding {self.rounding!r}")
        return rounded[self.rounding].astype(np.int64)

    def _taps(self, ratio: Floats, scale: float) -> list[tuple[int, Floats]]:
        """Offsets from the element before a place, and their weights before they sum to one."""
        reach, kernel = (1, self._hat) if self.mode == "linear" else (2, self._cubic)
        stretch = min(scale, 1.0) if self.antialias else 1.0
        first = int(np.floor(-reach / stretch)) + 1
        return [(tap, kernel((tap - ratio) * stretch)) for tap in range(first, 2 - first)]

    def _hat(self, distance: Floats) -> Floats:
        return np.asarray(np.clip(1 - np.abs(distance), 0, None))

    def _cubic(self, distance: Floats) -> Floats:
        """Keys' kernel (1981)."""
        a, d = self.cubic_a, np.abs(distance)
        near = (a + 2) * d**3 - (a + 3) * d**2 + 1
        far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
        return np.asarray(np.where(d <= 1, near, np.where(d < 2, far, 0)))
