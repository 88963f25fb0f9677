"""The networks of the table."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

from torch import nn

from tests.frontends.torch.networks import DSCNN, LeNet, ResNet8, ResNet18
from tests.networks.from_onnx import light_model
from tests.networks.from_torch import ModuleOfSize, torch_network
from tests.networks.from_zoo import zoo_network
from tests.networks.models.gpt import GPT
from tests.networks.models.language_models import GPT2, Bert
from tests.networks.models.recurrent import Recurrent
from tests.networks.models.torchvision_models import torchvision_models
from tests.networks.models.unet import UNet
from tests.networks.network import Network, Pair

_LIGHT = (
    *("bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50"),
    *("shufflenet", "squeezenet", "vgg19", "zfnet512"),
)


Shape = tuple[int, ...]


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
        zoo_network("lenet", LeNet, (16, 28), (3, 28)),
        zoo_network("resnet8", lambda _size: ResNet8(), (16, 32), (3, 16)),
        zoo_network("ds_cnn", lambda _size: DSCNN(), (16, None), (3, None)),
        zoo_network("resnet18", lambda _size: ResNet18(), (16, 32), (2, 16)),
        zoo_network("resnet50", vision("resnet50"), (8, 224), (2, 64)),
        zoo_network("vgg16", _small_vgg16, (16, 32), (2, 32)),
        zoo_network("mobilenetv2", vision("mobilenet_v2", dropout=0.0), (8, 224), (2, 64)),
        zoo_network("unet", partial(_unet, 2, 64, 4), (4, 224), (2, 32), classes=2),
        zoo_network(
            "gpt_nano",
            lambda length: GPT(length, tokens=17, width=48, heads=3, blocks=3),
            *((16, 63), (3, 12)),
            classes=17,
        ),
    ]


def _unet(rank: int, width: int, depth: int, _size: int) -> nn.Module:
    return UNet(rank, 1, 2, width=width, depth=depth)


def _recurrent(cell: type[nn.RNNBase], _length: int) -> nn.Module:
    return Recurrent(cell, 32, 64, 10)


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
    def by_hand(name: str, module: ModuleOfSize, shape: Shape, *settings: Pair) -> Network:
        return torch_network(name, "torch, by hand", module, shape, *settings)

    return [
        by_hand("lstm", partial(_recurrent, nn.LSTM), (-1, 32), (8, 32), (3, 6)),
        by_hand("gru", partial(_recurrent, nn.GRU), (-1, 32), (8, 32), (3, 6)),
        by_hand("unet-2d", partial(_unet, 2, 64, 4), (1, -1, -1), (4, 224), (2, 32)),
        by_hand("unet-3d", partial(_unet, 3, 32, 3), (1, -1, -1, -1), (1, 64), (2, 16)),
    ]


def _vision() -> list[Network]:
    names = (
        *("resnet18", "resnet34", "resnet50", "googlenet", "mobilenet_v2", "mobilenet_v3_small"),
        *("mobilenet_v3_large", "efficientnet_b0", "vgg16", "vgg19"),
    )

    def vision(name: str, module: ModuleOfSize, checked: Pair) -> Network:
        shape = (3, -1, -1)
        return torch_network(f"torchvision {name}", "torchvision", module, shape, (8, 224), checked)

    # Deep batch norms of four numbers a channel are chaos.
    entries = [
        vision(name, partial(_vision_module, name), (4 if name == "resnet50" else 2, 64))
        for name in names
    ]
    return [*entries, vision("vit_b_16", _vit, (2, 48))]


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
    def language(name: str, module: ModuleOfSize, full: Pair, vocabulary: int) -> Network:
        full_name = f"transformers {name}"
        return torch_network(
            full_name, "transformers", module, (-1,), full, (2, 16), vocabulary=vocabulary
        )

    return [
        language("bert-base", lambda _length: Bert(), (8, 128), 30_522),
        language("gpt2-small", lambda _length: GPT2(), (2, 1024), 50_257),
    ]
