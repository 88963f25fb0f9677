"""A keyword spotter learns its user's voice on an emulated Cortex-M4."""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

sys.path.append(str(Path(__file__).parents[1]))
from keyword_spotting.speech import Speaker, disturb, features, speak
from on_device.host import Application, Samples, accuracy, main, pretrain

WORDS = ("yes", "no", "up", "down", "left", "right", "stop", "go")
KNOWN = tuple(
    f"{accent}+{variant}"
    for accent in ("en-us", "en-gb")
    for variant in ("m1", "m2", "m3", "m7", "f1", "f2", "f4", "Andy")
)
"""Voices of pretraining."""

OTHERS = ("en-us+f5", "en-gb+m5", "en-us+Annie", "en-gb+Michael", "en-gb-x-rp+David")
"""Voices that measure the pretrained network."""

USER = "en-029+whisper"
"""The device's user, whom pretraining has never heard: from the Caribbean, and whispering."""

CHANNELS, BLOCKS = 24, 3
SPEEDS, PITCHES = (130, 160, 190), (35, 65)


def network() -> nn.Sequential:
    """A DS-CNN (Zhang et al. 2017) of 24 channels and three depthwise separable blocks."""
    layers = [nn.Conv2d(1, CHANNELS, (10, 4), stride=2, padding=(5, 1), bias=False)]
    layers += [nn.BatchNorm2d(CHANNELS), nn.ReLU()]
    for _ in range(BLOCKS):
        layers += [nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS, bias=False)]
        layers += [nn.BatchNorm2d(CHANNELS), nn.ReLU()]
        layers += [nn.Conv2d(CHANNELS, CHANNELS, 1, bias=False)]
        layers += [nn.BatchNorm2d(CHANNELS), nn.ReLU()]
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS, len(WORDS)))
    return nn.Sequential(*layers, *head)


def spoken(speakers: list[Speaker], copies: int, seed: int) -> Samples:
    """Every word by every speaker, each `copies` times with other noise, in random order."""
    rng = np.random.default_rng(seed)
    sounds = [(k, speak(word, who)) for who in speakers for k, word in enumerate(WORDS)]
    pairs = [(features(disturb(s, rng)), k) for k, s in sounds for _ in range(copies)]
    order = rng.permutation(len(pairs))
    inputs = np.stack([pairs[row][0] for row in order])
    return Samples(inputs, np.array([pairs[row][1] for row in order]))


def all_ways(voice: str) -> list[Speaker]:
    """The voice at every speed and pitch."""
    return [Speaker(voice, speed, pitch) for speed in SPEEDS for pitch in PITCHES]


def make() -> Application:
    """Pretrain on the known voices; the device gets the user's."""
    torch.manual_seed(0)
    net = network()
    known = spoken([who for voice in KNOWN for who in all_ways(voice)], 1, seed=1)
    others = spoken([who for voice in OTHERS for who in all_ways(voice)], 1, seed=2)
    pretrain(net, known, batch=32, epochs=8, lr=3e-3)
    print(
        f"{len(KNOWN)} voices: {accuracy(net, known):.0%} right; {len(OTHERS)} other voices: ",
        end="",
    )
    print(f"{accuracy(net, others):.0%}")
    for parameter in list(net.parameters())[:-8]:  # all but the last block and the classifier
        parameter.requires_grad_(False)
    learned = spoken([Speaker(USER, speed) for speed in SPEEDS], 2, seed=3)
    tested = spoken(
        [Speaker(USER, speed, pitch) for speed in (145, 175) for pitch in (40, 60)], 2, 4
    )
    title = "Keyword spotting: learns the voice of its user."
    device = {"batch": 4, "steps": 72, "lr": 0.05, "arena": "192KiB"}
    return Application(title, net, learned, tested, **device, usual=known.first(256))


if __name__ == "__main__":
    main(make, "espeak-ng")
