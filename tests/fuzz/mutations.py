"""Seeded damage to files: bits, cuts, splices, encodings, values of JSON and TOML, broken zips."""

from __future__ import annotations

import io
import json
import random
import re
import warnings
import zipfile
from collections.abc import Callable

_VALUES: tuple[object, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**53, 2**63, 2**64, -(2**63), 10**30),
    *(0.0, -0.5, 1e308, -1e308, 1e-320, float("inf"), float("nan")),
    *("", "\0", "x" * 1000, "../../etc/passwd", "nan", "1e999", "\ud800", "é" * 50),
    *([], {}, [[]], [None], {"": None}, [1, "a"], {"name": {}}),
)

_TOML_VALUES = (
    *("true", "false", "0", "-1", "9223372036854775807", "1" + "0" * 400, "1e308", "inf", "nan"),
    *('""', '"x"', '"1e999GiB"', '"-1"', "[]", "{}", '["a", 1]', "[[1]]", "1979-05-27", "0x10"),
)


def mutated(content: bytes, seed: int) -> bytes:
    """`content` with one to three kinds of damage; equal seed, equal damage."""
    rng = random.Random(seed)
    for _ in range(rng.choice((1, 1, 2, 3))):
        content = _one(content, rng)
    return content


def _one(content: bytes, rng: random.Random) -> bytes:
    kinds: list[Callable[[bytes, random.Random], bytes]] = [_flip, _cut, _splice, _repeat, _encode]
    if content[:4] == b"PK\x03\x04":
        kinds += [_rezip] * 4
    elif content[:1] in (b"{", b"["):
        kinds += [_json] * 6
    elif b" = " in content[:2000]:
        kinds += [_toml] * 6
    return rng.choice(kinds)(content, rng)


def _flip(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 8, 64))):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut(content: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(content) + 1)
    return content[:at] if rng.random() < 0.7 else content[at:]


def _splice(content: bytes, rng: random.Random) -> bytes:
    if not content:
        return rng.randbytes(rng.randrange(64))
    start, length = rng.randrange(len(content)), rng.randrange(1, 64)
    junk = rng.choice((rng.randbytes(length), b"\xff" * length, b"\0" * length, b"9" * 400))
    return content[:start] + junk + content[start + rng.choice((0, length)) :]


def _repeat(content: bytes, rng: random.Random) -> bytes:
    if not content:
        return content
    start = rng.randrange(len(content))
    piece = content[start : start + rng.randrange(1, 200)]
    return content[:start] + piece * rng.choice((2, 2, 50)) + content[start:]


def _encode(content: bytes, rng: random.Random) -> bytes:
    text = content.decode("latin-1")
    return rng.choice(
        (
            b"\xef\xbb\xbf" + content,
            text.encode("utf-16"),
            text.encode("utf-8") + b"\xc3\x28",
            content.replace(b"\n", b"\r\n"),
            b"[" * 100_000 + content,
            b'{"a":' * 50_000,
            b"",
        )
    )


def _json(content: bytes, rng: random.Random) -> bytes:
    """Another value, or a missing or doubled key, somewhere in a document or in one of its lines."""
    lines = content.split(b"\n")
    try:
        document = json.loads(content)
        at = None
    except (ValueError, RecursionError):
        at = rng.randrange(len(lines))
        try:
            document = json.loads(lines[at])
        except (ValueError, RecursionError):
            return _flip(content, rng)
    places: list[tuple[object, object]] = []
    waiting = [document] if isinstance(document, dict | list) else []
    while waiting:
        value = waiting.pop()
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, child in items:
            places.append((value, key))
            if isinstance(child, dict | list):
                waiting.append(child)
    if places:
        owner, key = rng.choice(places)
        if rng.random() < 0.2:
            del owner[key]  # type: ignore[attr-defined]
        else:
            owner[key] = rng.choice(_VALUES)  # type: ignore[index]
    text = json.dumps(document)
    if places and rng.random() < 0.1:
        text = _with_a_doubled_key(text, rng)
    changed = text.encode("utf-8", "surrogatepass")
    if at is None:
        return changed
    return b"\n".join([*lines[:at], changed, *lines[at + 1 :]])


def _with_a_doubled_key(text: str, rng: random.Random) -> str:
    """An object whose first key, or another one's key, stands there twice."""
    starts = [match.start() for match in re.finditer(r'"[^"\\]*": ', text)]
    if not starts:
        return text
    at = rng.choice(starts)
    key = text[at : text.index(": ", at)]
    return f"{text[:at]}{key}: {rng.choice(('0', 'null', '[]'))}, {text[at:]}"


def _toml(content: bytes, rng: random.Random) -> bytes:
    lines = content.decode("latin-1").split("\n")
    at = rng.randrange(len(lines))
    if rng.random() < 0.2:
        lines[at : at + 1] = rng.choice(([], [lines[at]] * 2, ["[[device]]"], ["a.b = 1"]))
    else:
        lines[at] = re.sub(r"=.*", lambda _: f"= {rng.choice(_TOML_VALUES)}", lines[at])
    return "\n".join(lines).encode("latin-1")


def _rezip(content: bytes, rng: random.Random) -> bytes:
    """Damage inside one member, a missing member, another name, a doubled one, other compression."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    except Exception:  # damaged before
        return _flip(content, rng)
    if not members:
        return content
    at = rng.randrange(len(members))
    name, inside = members[at]
    match rng.randrange(6):
        case 0:
            del members[at]
        case 1:
            members[at] = (rng.choice(("../" + name, "/" + name, name + "x", "a/b/c")), inside)
        case 2:
            members.append((name, inside))
        case _:
            members[at] = (name, _one(inside, rng))
    buffer = io.BytesIO()
    method = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w", method) as archive:
        warnings.simplefilter("ignore")  # doubled names
        for entry in members:
            archive.writestr(*entry)
    return buffer.getvalue()
