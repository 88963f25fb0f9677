"""A network that reads upright digits learns to read them upside down, on an emulated Cortex-M4."""

import sys
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

sys.path.append(str(Path(__file__).parents[1]))
from on_device.host import Application, Samples, accuracy, main, pretrain


def network() -> nn.Sequential:
    """Three convolutions with batch norms, and a classifier."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()),
        *(nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()),
        *(nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32)),
        *(nn.ReLU(), nn.Flatten(), nn.Linear(32 * 16, 10)),
    )


def make() -> Application:
    """Pretrain on upright digits; the device gets others, turned by 180 degrees, as its camera hangs."""
    torch.manual_seed(0)
    digits = load_digits()
    images = (digits.images[:, None] / 16).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(images))
    parts = np.split(order, [1200, 1328, 1628])
    upright, turned, tested = (Samples(images[rows], digits.target[rows]) for rows in parts[:3])
    turned, hanging = (
        Samples(np.ascontiguousarray(part.inputs[:, :, ::-1, ::-1]), part.labels)
        for part in (turned, tested)
    )
    net = network()
    pretrain(net, upright, batch=48, epochs=6, lr=3e-3)
    print(f"pretrained: {accuracy(net, tested):.0%} of upright digits right, ", end="")
    print(f"{accuracy(net, hanging):.0%} of hanging ones")
    for parameter in list(net.parameters())[:-5]:  # all but the last convolution and the classifier
        parameter.requires_grad_(False)
    title = "Image fine-tuning: the camera hangs upside down."
    device = {"batch": 4, "steps": 64, "lr": 0.03, "arena": "96KiB"}
    return Application(title, net, turned, hanging, **device, usual=upright.first(256))


if __name__ == "__main__":
    main(make)
