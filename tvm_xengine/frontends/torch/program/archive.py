"""Inspection of ``.pt2`` archives before PyTorch loads them, because loading can execute code.

PyTorch unpickles where the archive asks for it (weights or constants with ``use_pickle``, custom and
opaque objects, sample inputs that are no plain tensors), loads compiled libraries that lie in it, and
evaluates symbolic shapes as Python. A program made by ``torch.export.save`` from plain tensors has none
of these. Whatever else is found is refused by name; nothing of the archive has run by then.

The layout is that of ``torch/export/pt2_archive/constants.py``, and of PyTorch 2.7 before it.
"""

from __future__ import annotations

import io
import json
import math
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.files.archives import DAMAGED_ZIP
from tvm_xengine.frontends.torch.quiet import quiet_export

_CONFIGS = ("data/weights/model_weights_config.json", "data/constants/model_constants_config.json")
_PROGRAMS = ("models/model.json", "serialized_exported_program.json")
_PICKLES = (
    "data/sample_inputs/model.pt",
    "serialized_state_dict.pt",
    "serialized_constants.pt",
    "serialized_example_inputs.pt",
)
"""Members that PyTorch unpickles: first as plain tensors, and if that fails as anything."""

_KNOWN = re.compile(
    "|".join(
        [
            *map(re.escape, (*_CONFIGS, *_PROGRAMS, *_PICKLES)),
            r"data/weights/weight_\d+",
            r"data/constants/tensor_\d+",
            r"archive_format|archive_version|byteorder|version|\.data/\w+",
            r"(extra|extra_files)/[\w./-]+",
        ]
    )
)

_OPERATOR = re.compile(
    r"torch\.ops(\.[A-Za-z]\w*){2,}|(_operator|math)\.[A-Za-z]\w*|torch\.sym_\w+"
)
_PRIVATE_OPERATOR = re.compile(r"torch\.ops\.aten\.(_[a-z]\w*)\.[A-Za-z]\w*")
"""Such as ``_assert_tensor_metadata``, which a change of type leaves in a program."""
_UNSAFE_OPERATORS = ("torch.ops.aten.from_file",)
"""They reach beyond the program."""

_SHAPE = re.compile(r"([A-Za-z0-9_+\-*/(),= ]|'[A-Za-z]\w*'){1,400}")
_FUNCTIONS = frozenset(
    ("Add", "CleanDiv", "FloorDiv", "Integer", "Max", "Min", "Mod", "Mul", "PythonMod", "Symbol")
)
"""Those that symbolic shapes are made with; a name with parentheses is called when it is read."""

_MOST_DIGITS = 18
"""A size of more digits is no 64-bit number."""

_MOST_RATIO = 20
_SLACK_BYTES = 1 << 24
"""A file may unpack to `_MOST_RATIO` times its size plus this. `torch.export.save` stores members without
compression (a ratio of 1); the rest is room for archives that were compressed again, while a zip
bomb has a ratio of 1000."""


def check_archive(path: Path, content: bytes) -> None:
    """Refuse an archive that could execute code, or is no archive of an exported program.

    Parameters
    ----------
    path
        Whose `content` it is, for messages.

    Raises
    ------
    UnsupportedModelError
        Which member is not what ``torch.export.save`` writes for plain tensors, and why.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            _check(path, archive, content)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise UnsupportedModelError(
            f"{path} is damaged or is no archive of torch.export.save: {type(error).__name__} in its"
            " description of the model"
        ) from error
    except DAMAGED_ZIP as error:
        raise UnsupportedModelError(
            f"{path} is not a program saved by torch.export.save: {error}"
        ) from error


def _check(path: Path, archive: zipfile.ZipFile, content: bytes) -> None:
    members = _members(path, archive, content)
    limit_bytes = _MOST_RATIO * len(content) + _SLACK_BYTES
    if sum(info.file_size for info in members.values()) > limit_bytes:
        raise _refusal(path, "its members unpack to", f"more than {limit_bytes} bytes")
    if not any(name in members for name in _PROGRAMS):
        raise _refusal(path, "expected a member", _PROGRAMS[0])
    for name in _CONFIGS:
        if name in members:
            sizes = {name: info.file_size for name, info in members.items()}
            _check_payloads(path, name, archive.read(members[name]), sizes, limit_bytes)
    for name in _PROGRAMS:
        if name in members:
            _check_program(path, name, archive.read(members[name]))
    for name in _PICKLES:
        if name in members:
            _check_pickle(path, name, archive.read(members[name]))


def _members(path: Path, archive: zipfile.ZipFile, content: bytes) -> Mapping[str, zipfile.ZipInfo]:
    """The members without the archive's own folder, each of a name that is known."""
    infos = archive.infolist()
    names = [info.filename for info in infos]
    is_old = _PROGRAMS[1] in names
    roots = {"" if is_old else name.partition("/")[0] + "/" for name in names}
    if len(roots) != 1 or len(set(names)) != len(names):
        raise _refusal(path, "its members", "lie in several folders, or have equal names")
    if not is_old and set(names) != _names_for_torch(path, content, next(iter(roots))):
        raise _refusal(path, "it has two directories", "zip readers see different members")
    members = {
        name.removeprefix(next(iter(roots))): info for name, info in zip(names, infos, strict=True)
    }
    for name in members:
        if not _KNOWN.fullmatch(name) or ".." in name:
            raise _refusal(path, name, "no part of a program of plain tensors")
    return members


def _names_for_torch(path: Path, content: bytes, root: str) -> set[str]:
    """What PyTorch's own reader finds; it need not be the same directory as Python's."""
    try:
        reader = torch._C.PyTorchFileReader(io.BytesIO(content))
        return {root + name for name in reader.get_all_records()}
    except RuntimeError as error:
        raise UnsupportedModelError(
            f"{path} is not a program saved by torch.export.save: PyTorch cannot read the archive"
        ) from error


def _check_payloads(
    path: Path, name: str, text: bytes, sizes: Mapping[str, int], limit_bytes: int
) -> None:
    """Every weight and constant is the bytes of a tensor, and no tensor is larger than they can be."""
    folder = name.rpartition("/")[0]
    total = 0
    for tensor, payload in json.loads(text)["config"].items():
        file = f"{folder}/{payload['path_name']}"
        if payload["use_pickle"] is not False or not re.fullmatch(
            r"(weight|tensor)_\d+", payload["path_name"]
        ):
            raise _refusal(path, f"{tensor} ({file})", "would be unpickled")
        if file not in sizes:
            raise _refusal(path, f"{tensor} ({file})", "its bytes are missing")
        count = math.prod(_number(size) for size in payload["tensor_meta"]["sizes"])
        total += count
        if total > limit_bytes or (count and not sizes[file]):
            raise _refusal(path, f"{tensor} ({file})", f"{count} elements of {sizes[file]} bytes")


def _number(value: Mapping[str, object]) -> int:
    number = value["as_int"]
    if not isinstance(number, int) or number < 0:
        raise ValueError(f"{number!r} is no size")
    return number


def _check_program(path: Path, name: str, text: bytes) -> None:
    document = json.loads(text)
    for key, value in _strings(document):
        if key == "target" and not _is_operator(value):
            raise _refusal(path, f"{name} calls {value[:80]!r}", "no operator of PyTorch")
        if key == "expr_str" and not _is_shape(value):
            raise _refusal(path, f"{name} has the size {value[:80]!r}", "would be evaluated")


def _strings(document: object) -> Iterator[tuple[str, str]]:
    """All texts with their keys; a loop, because a crafted document may be nested deeply."""
    waiting: list[tuple[str, object]] = [("", document)]
    while waiting:
        key, value = waiting.pop()
        match value:
            case dict():
                waiting += value.items()
            case list():
                waiting += [(key, item) for item in value]
            case str():
                yield key, value


def _is_operator(target: str) -> bool:
    if private := _PRIVATE_OPERATOR.fullmatch(target):
        return bool(torch._C._jit_get_operation(f"aten::{private[1]}")[0])
    return bool(_OPERATOR.fullmatch(target)) and not target.startswith(_UNSAFE_OPERATORS)


def _is_shape(expression: str) -> bool:
    return (
        bool(_SHAPE.fullmatch(expression))
        and "**" not in expression
        and "__" not in expression
        and all(len(digits) <= _MOST_DIGITS for digits in re.findall(r"\d+", expression))
        and set(re.findall(r"([A-Za-z_]\w*)\s*\(", expression)) <= _FUNCTIONS
    )


def _check_pickle(path: Path, name: str, content: bytes) -> None:
    """What is unpickled must be plain tensors; PyTorch falls back to executing code otherwise."""
    try:
        with quiet_export():  # PyTorch warns of pickles that others have made
            torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
    except Exception as error:
        raise _refusal(path, name, "would be unpickled as more than plain tensors") from error


def _refusal(path: Path, what: str, why: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{path} is refused, because loading it could execute code or exhaust memory: {what}: {why};"
        " export the model again from plain tensors with torch.export.save, or give the exported"
        " program itself to the Python interface"
    )
