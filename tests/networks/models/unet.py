"""U-Net (Ronneberger et al. 2015; Cicek et al. 2016) with padded convolutions and batch norm."""

import torch
from torch import nn

CONV = {2: nn.Conv2d, 3: nn.Conv3d}
CONV_TRANSPOSE = {2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
NORM = {2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
POOL = {2: nn.MaxPool2d, 3: nn.MaxPool3d}


class UNet(nn.Module):
    """Segments images of `rank` axes; each level has twice the channels of the one above."""

    def __init__(self, rank: int, channels: int, classes: int, *, width: int, depth: int) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(depth + 1)]
        self.down = nn.ModuleList(
            _double(rank, before, after)
            for before, after in zip([channels, *widths], widths, strict=False)
        )
        self.pool = POOL[rank](2)
        self.up = nn.ModuleList(
            nn.ModuleList(
                [CONV_TRANSPOSE[rank](below, above, 2, stride=2), _double(rank, 2 * above, above)]
            )
            for below, above in zip(widths[:0:-1], widths[-2::-1], strict=True)
        )
        self.head = CONV[rank](width, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        levels = []
        for position, block in enumerate(self.down):
            x = block(x if position == 0 else self.pool(x))
            levels.append(x)
        levels.pop()
        for enlarge, merge in self.up:
            x = merge(torch.cat([levels.pop(), enlarge(x)], 1))
        return self.head(x)


def _double(rank: int, before: int, after: int) -> nn.Sequential:
    return nn.Sequential(
        CONV[rank](before, after, 3, padding=1, bias=False),
        NORM[rank](after),
        nn.ReLU(),
        CONV[rank](after, after, 3, padding=1, bias=False),
        NORM[rank](after),
        nn.ReLU(),
    )
