"""Image resizing by every method, coordinate transformation and rounding."""

import torch.nn.functional as F
from tvm import relax

from tests.training.cases.case import Case, Draw, DrawCase

image = relax.op.image

COORDINATES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
ROUNDINGS = ["round", "floor", "ceil", "round_prefer_floor", "round_prefer_ceil"]
LINEAR = {2: "bilinear", 3: "trilinear"}


def _like_torch(rank: int) -> DrawCase:
    """The modes that PyTorch has too."""
    ours = {2: image.resize2d, 3: image.resize3d}[rank]

    def draw_case(draw: Draw) -> Case:
        size = draw.integers(rank, 1, 9)
        mode = draw.one_of(["nearest", "nearest-exact", LINEAR[rank]] + ["bicubic"] * (rank == 2))
        nearest = mode.startswith("nearest")
        aligned = not nearest and draw.flag()
        coordinates = "align_corners" if aligned else "half_pixel"
        if nearest:
            coordinates = "asymmetric" if mode == "nearest" else "tf_half_pixel_for_nn"
        method = {"bicubic": "cubic", LINEAR[rank]: "linear"}.get(mode, "nearest_neighbor")
        return Case(
            lambda x: ours(
                x,
                tuple(size),
                method=method,
                coordinate_transformation_mode=coordinates,
                rounding_method="floor",
            ),
            lambda x: F.interpolate(x, size, mode=mode, align_corners=None if nearest else aligned),
            {"x": draw.normal(*draw.integers(2, 1, 2), *draw.integers(rank, 1, 6))},
        )

    return draw_case


def _others(rank: int) -> DrawCase:
    """All other combinations, judged by finite differences of a linear function."""
    ours = {2: image.resize2d, 3: image.resize3d}[rank]

    def draw_case(draw: Draw) -> Case:
        size = tuple(draw.integers(rank, 1, 9))
        method = draw.one_of(["nearest_neighbor", "linear"] + ["cubic"] * (rank == 2))
        coordinates, rounding = draw.one_of(COORDINATES), draw.one_of(ROUNDINGS)
        alpha, exclude = draw.number(-1, -0.25), draw.integer(0, 1)
        return Case(
            lambda x: ours(
                x,
                size,
                method=method,
                coordinate_transformation_mode=coordinates,
                rounding_method=rounding,
                cubic_alpha=alpha,
                cubic_exclude=exclude,
            ),
            None,
            {"x": draw.normal(*draw.integers(2, 1, 2), *draw.integers(rank, 1, 6))},
        )

    return draw_case


CASES: dict[str, list[DrawCase]] = {
    f"image.resize{rank}d": [_like_torch(rank), _others(rank)] for rank in (2, 3)
}
