"""The networks of the table."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

from torch import nn

from tests.frontends.torch_networks import DSCNN, LeNet, ResNet8, ResNet18
from tests.networks.from_onnx import light_model
from tests.networks.from_torch import torch_network
from tests.networks.from_zoo import zoo_network
from tests.networks.gpt import GPT
from tests.networks.language_models import GPT2, Bert
from tests.networks.network import Network, Setting
from tests.networks.recurrent import Recurrent
from tests.networks.torchvision_models import torchvision_models
from tests.networks.unet import UNet

_LIGHT = (
    *("bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50"),
    *("shufflenet", "squeezenet", "vgg19", "zfnet512"),
)


def networks() -> dict[str, Network]:
    """All networks, by name."""
    entries = [
        *_zoo(),
        *_small(),
        *_vision(),
        *_language(),
        *(light_model(name) for name in _LIGHT),
    ]
    return {entry.name: entry for entry in entries}


def _zoo() -> list[Network]:
    def vision(name: str, **options: object) -> Callable[[int], nn.Module]:
        return lambda _size: getattr(torchvision_models(), name)(num_classes=10, **options)

    return [
        zoo_network("lenet", LeNet, full=Setting(16, 28), checked=Setting(3, 28), classes=10),
        zoo_network(
            "resnet8",
            lambda _size: ResNet8(),
            full=Setting(16, 32),
            checked=Setting(3, 16),
            classes=10,
        ),
        zoo_network(
            "ds_cnn",
            lambda _size: DSCNN(),
            full=Setting(16, None),
            checked=Setting(3, None),
            classes=10,
        ),
        zoo_network(
            "resnet18",
            lambda _size: ResNet18(),
            full=Setting(16, 32),
            checked=Setting(2, 16),
            classes=10,
        ),
        zoo_network(
            "resnet50", vision("resnet50"), full=Setting(8, 224), checked=Setting(2, 64), classes=10
        ),
        zoo_network(
            "vgg16", _small_vgg16, full=Setting(16, 32), checked=Setting(2, 32), classes=10
        ),
        zoo_network(
            "mobilenetv2",
            vision("mobilenet_v2", dropout=0.0),
            full=Setting(8, 224),
            checked=Setting(2, 64),
            classes=10,
        ),
        zoo_network(
            "unet",
            lambda _size: UNet(2, 1, 2, width=64, depth=4),
            full=Setting(4, 224),
            checked=Setting(2, 32),
            classes=2,
        ),
        zoo_network(
            "gpt_nano",
            lambda length: GPT(length, tokens=17, width=48, heads=3, blocks=3),
            full=Setting(16, 63),
            checked=Setting(3, 12),
            classes=17,
        ),
    ]


def _small_vgg16(size: int) -> nn.Module:
    """VGG-16 without the pooling to 7 x 7."""
    features = torchvision_models().vgg16(init_weights=False).features
    widths = (512 * (size // 32) ** 2, 4096, 4096)
    hidden = [
        layer
        for before, after in itertools.pairwise(widths)
        for layer in (nn.Linear(before, after), nn.ReLU())
    ]
    return nn.Sequential(features, nn.Flatten(), *hidden, nn.Linear(4096, 10))


def _small() -> list[Network]:
    by_hand = partial(torch_network, source="torch, by hand")
    return [
        by_hand(
            "lstm",
            module=lambda _length: Recurrent(nn.LSTM, 32, 64, 10),
            example=(-1, 32),
            full=Setting(8, 32),
            checked=Setting(3, 6),
        ),
        by_hand(
            "gru",
            module=lambda _length: Recurrent(nn.GRU, 32, 64, 10),
            example=(-1, 32),
            full=Setting(8, 32),
            checked=Setting(3, 6),
        ),
        by_hand(
            "unet-2d",
            module=lambda _size: UNet(2, 1, 2, width=64, depth=4),
            example=(1, -1, -1),
            full=Setting(4, 224),
            checked=Setting(2, 32),
        ),
        by_hand(
            "unet-3d",
            module=lambda _size: UNet(3, 1, 2, width=32, depth=3),
            example=(1, -1, -1, -1),
            full=Setting(1, 64),
            checked=Setting(2, 16),
        ),
    ]


def _vision() -> list[Network]:
    names = (
        *("resnet18", "resnet34", "resnet50", "googlenet", "mobilenet_v2", "mobilenet_v3_small"),
        *("mobilenet_v3_large", "efficientnet_b0", "vgg16", "vgg19"),
    )
    entries = [
        torch_network(
            f"torchvision {name}",
            "torchvision",
            partial(_vision_module, name),
            (3, -1, -1),
            full=Setting(8, 224),
            # Deep batch norms of four numbers a channel are chaos.
            checked=Setting(4 if name == "resnet50" else 2, 64),
        )
        for name in names
    ]
    vit = torch_network(
        "torchvision vit_b_16",
        "torchvision",
        _vit,
        (3, -1, -1),
        full=Setting(8, 224),
        checked=Setting(2, 48),
    )
    return [*entries, vit]


def _vision_module(name: str, _size: int) -> nn.Module:
    # Auxiliary classifiers would be further outputs, and so further losses.
    options = {"aux_logits": False, "init_weights": True} if name == "googlenet" else {}
    module: nn.Module = getattr(torchvision_models(), name)(**options)
    return module


def _vit(size: int) -> nn.Module:
    module: nn.Module = torchvision_models().vit_b_16(image_size=size)
    # The published head starts at zero, which would make all other gradients zero.
    nn.init.normal_(module.heads.head.weight, std=0.02)
    return module


def _language() -> list[Network]:
    return [
        torch_network(
            "transformers bert-base",
            "transformers",
            lambda _length: Bert(),
            (-1,),
            full=Setting(8, 128),
            checked=Setting(2, 16),
            vocabulary=30_522,
        ),
        torch_network(
            "transformers gpt2-small",
            "transformers",
            lambda _length: GPT2(),
            (-1,),
            full=Setting(2, 1024),
            checked=Setting(2, 16),
            vocabulary=50_257,
        ),
    ]
