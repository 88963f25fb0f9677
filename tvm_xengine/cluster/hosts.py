"""Which process runs on the host that a platform file names."""

from __future__ import annotations

import ipaddress
import json
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from tvm_xengine.cluster.ranks import Ranks
from tvm_xengine.errors import InvalidPlatformError
from tvm_xengine.scheduling.platform import Platform

HOST = "TVM_XENGINE_HOST"
"""Environment variable with the one host of the platform file that a process stands for, whatever the
name of its machine."""
_ANY_PORT = 9
"""Nothing is sent to it."""


@dataclass(frozen=True)
class Claim:
    """What a process says about where it runs.

    Attributes
    ----------
    name
        Of its machine, for messages.
    hosts
        Those of the platform that it takes itself for.
    """

    name: str
    hosts: Sequence[str]

    @classmethod
    def of_this_process(cls, hosts: Sequence[str], environment: Mapping[str, str]) -> Claim:
        """Of the process with this environment: it compares names first, and resolves what is left.

        The K-th process of a machine, as ``LOCAL_RANK`` counts them, is HOST/K; the first one is HOST, too.
        """
        if (name := environment.get(HOST)) is not None:
            return cls(name, [host for host in hosts if host == name])
        name, local = socket.gethostname(), int(environment.get("LOCAL_RANK", "0"))
        named = {host: machine for host in hosts for machine, at in [_parts(host)] if at == local}
        own = {name.lower(), name.partition(".")[0].lower()}
        found = [host for host, machine in named.items() if machine.lower() in own]
        found = found or [host for host, machine in named.items() if leads_here(machine)]
        return cls(f"{name}/{local}" if local else name, found)


def with_ranks_of_hosts(platform: Platform, ranks: Ranks) -> Platform:
    """Collective: the platform whose devices are on the rank that runs on their host.

    Raises
    ------
    InvalidPlatformError
        In all processes, if not each of them runs on one host and each host runs one of them.
    """
    if not platform.hosts:
        return platform
    claim = Claim.of_this_process(platform.hosts, os.environ)
    said = ranks.gather_texts(json.dumps(asdict(claim)))
    return placed(platform, [Claim(**json.loads(text)) for text in said])


def placed(platform: Platform, claims: Sequence[Claim]) -> Platform:
    """The platform whose devices are on the rank that claims their host; `claims` are in order of ranks.

    Raises
    ------
    InvalidPlatformError
        If a host has no rank or several, or a rank no host or several.
    """
    ranks_of = {
        host: [rank for rank, claim in enumerate(claims) if host in claim.hosts]
        for host in platform.hosts
    }
    faults = [
        f"no process runs on host {host} of device"
        f" {next(device.name for device in platform.devices if device.host == host)}"
        for host, ranks in ranks_of.items()
        if not ranks
    ]
    for rank, claim in enumerate(claims):
        if not claim.hosts:
            faults.append(f"rank {rank} runs on {claim.name}, which no device names as its host")
        elif len(claim.hosts) > 1:
            faults.append(f"rank {rank} on {claim.name} is each of {', '.join(claim.hosts)}")
    for host, ranks in ranks_of.items():
        if len(ranks) > 1:
            faults.append(f"host {host} runs the ranks {', '.join(map(str, ranks))}")
    if faults:
        raise InvalidPlatformError(
            f"{'; '.join(faults)}: expected one process on each of the hosts {', '.join(platform.hosts)};"
            f" correct the names in the platform file, or say with {HOST}=NAME which one a process stands for"
        )
    devices = tuple(replace(device, rank=ranks_of[device.host][0]) for device in platform.devices)
    return replace(platform, devices=devices)


def leads_here(machine: str) -> bool:
    """Whether a name or an address is one of this machine, loopback addresses aside, which all have."""
    try:
        found = socket.getaddrinfo(machine, _ANY_PORT, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return False
    return any(_is_own(family, where) for family, _, _, _, where in found)


def _is_own(family: socket.AddressFamily, where: tuple[object, ...]) -> bool:
    """Whether the system would send from an address what is sent there; nothing is sent."""
    if ipaddress.ip_address(str(where[0]).partition("%")[0]).is_loopback:
        return False
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(where)
            return bool(probe.getsockname()[0] == where[0])
    except OSError:
        return False


def _parts(host: str) -> tuple[str, int]:
    """The machine, and which process of it."""
    machine, _, number = host.rpartition("/")
    return (machine, int(number)) if machine and number.isdecimal() else (host, 0)
