"""What the processes of a run must have in common before they measure and plan together."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tvm_xengine.checks.packages import installed_version
from tvm_xengine.cluster.ranks import Ranks
from tvm_xengine.errors import InvalidPlatformError
from tvm_xengine.scheduling.platform import Platform

_PACKAGES = ("tvm-xengine", "apache-tvm", "torch")
"""Packages that make the plan, the kernels and the messages."""
_PLATFORM = "platform"


def check_agreement(ranks: Ranks, platform: Platform) -> None:
    """Collective: refuse processes with other packages, or with another platform file, than the first one.

    Raises
    ------
    InvalidPlatformError
        In all processes; names the rank and what differs.
    """
    mine = {
        **{package: installed_version(package) or "of no version" for package in _PACKAGES},
        _PLATFORM: _as_text(platform),
    }
    check_same([json.loads(text) for text in ranks.gather_texts(json.dumps(mine))])


def check_same(said: Sequence[Mapping[str, str]]) -> None:
    """Refuse what some rank says otherwise than the first one."""
    first = said[0]
    for rank, one in enumerate(said):
        for what, found in one.items():
            if found == first[what]:
                continue
            if what == _PLATFORM:
                pairs = enumerate(zip(found, first[what], strict=False))
                at = next((k for k, (a, b) in pairs if a != b), 0)
                ours, theirs = (text[max(0, at - 30) : at + 30] for text in (first[what], found))
                raise InvalidPlatformError(
                    f"rank {rank} has another platform file than rank 0: it says ...{theirs}... where rank 0"
                    f" says ...{ours}...; copy the same file to every host"
                )
            raise InvalidPlatformError(
                f"rank {rank} has {what} {found}, and rank 0 has {first[what]}: install the same version on"
                " every host"
            )


def _as_text(platform: Platform) -> str:
    """The platform but for the folders of files, which may lie elsewhere on each host."""
    devices = tuple(replace(device, folder=device.folder and "") for device in platform.devices)
    return repr(replace(platform, devices=devices))
