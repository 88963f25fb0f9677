"""Platforms as TOML files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import tomlkit
from tomlkit.exceptions import TOMLKitError

from tvm_xengine.checks.documents import reject_unknown_keys
from tvm_xengine.errors import InvalidPlatformError
from tvm_xengine.files.atomic_write import write_atomically
from tvm_xengine.files.read_text import read_text
from tvm_xengine.scheduling.platform import STREAM_TIMES, Device, Link, Platform
from tvm_xengine.scheduling.sizes import parse_bytes

BOARDS = Path(__file__).parent / "boards"
"""Platform files of boards whose energy was published."""

_HOST, _FILE = "host", "file"
"""Kinds of devices that only store."""

_DEVICE_KEYS = {
    *("name", "kind", "target", "budget", "kernels", "cores", "folder", "rank", "host"),
    *("power_w", "energy_nj_per_flop"),
}
_NAME = re.compile(r"[^\s=,]+")
"""Names of devices stand in options of the command line."""


def platform_path(text: str | Path) -> Path:
    """The file `text`, or else the platform file of the board of that name.

    Raises
    ------
    InvalidPlatformError
        If it is neither; the message lists the boards.
    """
    path = Path(text)
    if path.exists():
        return path
    known = {file.stem: file for file in sorted(BOARDS.glob("*.toml"))}
    if str(text) not in known:
        raise InvalidPlatformError(
            f"cannot read platform file {path}: there is no such file, and no board of that name;"
            f" boards are {', '.join(known)}"
        )
    return known[str(text)]


def read_platform(path: str | Path) -> Platform:
    """The platform described by the TOML file at `path`.

    The file holds ``[[device]]`` tables (``name``, ``budget``; ``target`` unless the device
    only stores; optional ``kind``, ``kernels``, ``power_w``, ``energy_nj_per_flop``, ``cores``,
    ``folder``, ``rank`` or ``host``), ``[[link]]`` tables
    (``src``, ``dst``; optional ``latency_us`` with ``bandwidth_gb_s``, ``energy_nj_per_byte``,
    ``energy_uj_per_copy``, ``engine``, ``both_ways``) and optional ``home``, ``alignment_bytes``,
    ``handover_us``, ``start_us`` and ``provenance``, a text that says where the figures are from.

    Raises
    ------
    InvalidPlatformError
        If the file is missing, is not TOML, or a key is missing, unknown or out of range.
    """
    path = Path(path)
    document = read_toml(path)
    try:
        return platform_from_document(document)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidPlatformError(f"{path}: {error}") from error


def read_toml(path: Path) -> Mapping[str, object]:
    """The document in a TOML file.

    Raises
    ------
    InvalidPlatformError
        If the file is missing, or is not TOML.
    """
    try:
        return dict(tomlkit.parse(read_text(path)).unwrap())
    except OSError as error:
        raise InvalidPlatformError(f"cannot read platform file {path}: {error.strerror}") from error
    except (TOMLKitError, ValueError, RecursionError, AttributeError, TypeError) as error:
        # tomlkit passes some faults of a text on as errors of its own code.
        raise InvalidPlatformError(f"{path} is not valid TOML: {error}") from error


def write_platform(platform: Platform, path: str | Path) -> None:
    """Write `platform` as TOML; an existing file is replaced only when all is written."""
    document = tomlkit.document()
    document["home"] = platform.home
    document["alignment_bytes"] = platform.alignment_bytes
    for name in STREAM_TIMES:
        if (time_us := getattr(platform, name)) is not None:
            document[name] = time_us
    devices = tomlkit.aot()
    for device in platform.devices:
        table = tomlkit.table()
        table["name"] = device.name
        if device.target is not None:
            table["target"] = device.target
        else:
            table["kind"] = _HOST if device.folder is None else _FILE
        table["budget"] = device.budget_bytes
        table["kernels"] = list(device.kernels)
        table["power_w"] = device.power_w
        table["energy_nj_per_flop"] = device.energy_nj_per_flop
        if device.cores:
            table["cores"] = list(device.cores)
        if device.folder is not None:
            table["folder"] = device.folder
        if device.host:
            table["host"] = device.host
        elif device.rank:
            table["rank"] = device.rank
        devices.append(table)
    document["device"] = devices
    if platform.links:
        links = tomlkit.aot()
        for link in platform.links:
            table = tomlkit.table()
            table["src"], table["dst"] = link.src, link.dst
            if link.is_measured:
                table["latency_us"], table["bandwidth_gb_s"] = link.latency_us, link.bandwidth_gb_s
            table["energy_nj_per_byte"] = link.energy_nj_per_byte
            table["energy_uj_per_copy"] = link.energy_uj_per_copy
            if link.engine is not None:
                table["engine"] = link.engine
            links.append(table)
        document["link"] = links
    write_atomically(Path(path), tomlkit.dumps(document))


def platform_from_document(document: Mapping[str, object]) -> Platform:
    """The platform that a document describes; ValueError and TypeError say what is wrong with it."""
    known = {"device", "link", "home", "alignment_bytes", *STREAM_TIMES, "provenance"}
    reject_unknown_keys("the file", document, known)
    links: list[Link] = []
    for position, table in enumerate(_tables(document, "link")):
        links.extend(_links_from_table(f"link {position + 1}", table))
    alignment = document.get("alignment_bytes", 64)
    if not isinstance(alignment, int) or isinstance(alignment, bool):
        raise ValueError(f"alignment_bytes must be an integer, got {alignment!r}")
    return Platform(
        devices=tuple(
            _device_from_table(f"device {position + 1}", table)
            for position, table in enumerate(_tables(document, "device"))
        ),
        links=tuple(links),
        home=_text("the file", document, "home") if "home" in document else "",
        alignment_bytes=alignment,
        handover_us=_time_us(document, "handover_us"),
        start_us=_time_us(document, "start_us"),
    )


def _time_us(document: Mapping[str, object], name: str) -> float | None:
    return _number("the file", document, name, 0.0) if name in document else None


def _tables(document: Mapping[str, object], key: str) -> list[Mapping[str, object]]:
    tables = document.get(key, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ValueError(f"expected [[{key}]] tables, got {tables!r}")
    return tables


def _device_from_table(where: str, table: Mapping[str, object]) -> Device:
    name = _text(where, table, "name")
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{where}: a name is text without spaces, commas and '=', which options such as"
            f" --budget NAME=BYTES use, got {name!r}"
        )
    where = f"device {name}"
    reject_unknown_keys(where, table, _DEVICE_KEYS)
    kernels = table.get("kernels", list(Device.kernels))
    if not isinstance(kernels, list) or not all(isinstance(one, str) for one in kernels):
        raise ValueError(f'{where}: kernels must be a list such as ["tir"], got {kernels!r}')
    cores = table.get("cores", [])
    if not isinstance(cores, list) or any(type(core) is not int for core in cores):
        raise ValueError(f"{where}: cores must be a list of numbers such as [0, 1], got {cores!r}")
    rank, host = _rank_and_host(where, table)
    target = _text(where, table, "target") if "target" in table else None
    folder = _text(where, table, "folder") if "folder" in table else None
    if "kind" in table:
        _check_kind(where, _text(where, table, "kind"), target, folder)
    return Device(
        name=name,
        target=target,
        budget_bytes=_budget_bytes(where, table),
        kernels=tuple(kernels),
        power_w=_number(where, table, "power_w", 0.0),
        energy_nj_per_flop=_number(where, table, "energy_nj_per_flop", 0.0),
        cores=tuple(cores),
        folder=folder,
        rank=rank,
        host=host,
    )


def _rank_and_host(where: str, table: Mapping[str, object]) -> tuple[int, str]:
    """Where the device is, by number or by name."""
    rank = table.get("rank", 0)
    if type(rank) is not int or rank < 0:
        raise ValueError(f"{where}: rank must be a whole number, at least 0, got {rank!r}")
    if "host" not in table:
        return rank, ""
    host = _text(where, table, "host")
    if not host:
        raise ValueError(f"{where}: host must be the name or address of a machine, got ''")
    if "rank" in table:
        raise ValueError(
            f"{where}: expected the name of a host, or else a rank, got host {host!r} and rank {rank}"
        )
    return rank, host


def _budget_bytes(where: str, table: Mapping[str, object]) -> int:
    budget = _required(where, table, "budget")
    try:
        return parse_bytes(budget if isinstance(budget, int) else str(budget))
    except ValueError as error:
        raise ValueError(f"{where}: budget: {error}") from error


def _check_kind(where: str, kind: str, target: str | None, folder: str | None) -> None:
    """Refuse a kind of storage that the other keys of the device contradict."""
    if kind not in (_HOST, _FILE):
        raise ValueError(
            f'{where}: kind must be "{_HOST}" (memory of the host) or "{_FILE}" (a file), got {kind!r}; a'
            " device that computes has a target and no kind"
        )
    if target is not None:
        raise ValueError(
            f'{where}: a device of kind "{kind}" only stores; leave out its target {target!r}, or its kind'
        )
    if kind == _FILE and folder is None:
        raise ValueError(
            f'{where}: a device of kind "{_FILE}" needs the folder in which its file is made, such as'
            ' folder = "/mnt/ssd"'
        )
    if kind == _HOST and folder is not None:
        raise ValueError(
            f'{where}: memory of the host lies in no folder; leave out folder, or write kind = "{_FILE}"'
        )


def _links_from_table(where: str, table: Mapping[str, object]) -> list[Link]:
    src, dst = (_text(where, table, key) for key in ("src", "dst"))
    where = f"link {src} -> {dst}"
    timing = {"latency_us", "bandwidth_gb_s"}
    energy = {"energy_nj_per_byte", "energy_uj_per_copy"}
    reject_unknown_keys(where, table, {"src", "dst", "engine", "both_ways"} | timing | energy)
    link = Link(
        src,
        dst,
        latency_us=_number(where, table, "latency_us", 0.0) if "latency_us" in table else None,
        bandwidth_gb_s=(
            _number(where, table, "bandwidth_gb_s", 0.0) if "bandwidth_gb_s" in table else None
        ),
        energy_nj_per_byte=_number(where, table, "energy_nj_per_byte", 0.0),
        energy_uj_per_copy=_number(where, table, "energy_uj_per_copy", 0.0),
        engine=_text(where, table, "engine") if "engine" in table else None,
    )
    both_ways = table.get("both_ways", False)
    if not isinstance(both_ways, bool):
        raise ValueError(f"{where}: both_ways must be true or false, got {both_ways!r}")
    if both_ways:
        return [link, replace(link, src=dst, dst=src)]
    return [link]


def _required(where: str, table: Mapping[str, object], key: str) -> object:
    if key not in table:
        raise ValueError(f"{where} lacks the key {key!r}; it has {sorted(table)}")
    return table[key]


def _text(where: str, table: Mapping[str, object], key: str) -> str:
    value = _required(where, table, key)
    if not isinstance(value, str):
        raise ValueError(f"{where}: {key} must be text, got {value!r}")
    return value


def _number(where: str, table: Mapping[str, object], key: str, default: float) -> float:
    value = table.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{where}: {key} must be a number, got {value!r}")
    return float(value)
