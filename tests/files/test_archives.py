"""Damaged archives raise what their readers expect."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tvm_xengine.data.images import read_images
from tvm_xengine.errors import InvalidDataError
from tvm_xengine.files.archives import DAMAGED_ARRAYS, DAMAGED_ZIP, read_arrays


def archive_with(name: str, content: bytes) -> io.BytesIO:
    file = io.BytesIO()
    np.savez(file, x=np.ones(3))
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr(name, content)
    file.seek(0)
    return file


def header(text: bytes) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def test_a_member_that_is_no_array_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'readme\.txt' is no array"):
        read_arrays(archive_with("readme.txt", b"text"))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_of_a_name_are_refused() -> None:
    member = io.BytesIO()
    np.save(member, np.zeros(3))
    with pytest.raises(ValueError, match=r"two members called 'x'"):
        read_arrays(archive_with("x.npy", member.getvalue()))


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (3,",
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000000,)}",
        b"{'descr': [], 'fortran_order': 0, 'shape': 'x'}",
        b"((((" * 100,
        b"'''",
        b"{'descr': __import__('os').name, 'fortran_order': False, 'shape': ()}",
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (" + b"9" * 5000 + b",)}",
        b"{'descr': '<f8', 'fortran_order': False, 'shape': ()}" + b" " * 20_000,
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}",
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (1152921504606846976,) * 2}",
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (1152921504606846976, 1)}",
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (" + b"1," * 70 + b")}",
        b"{'descr': '(100000,)f8', 'fortran_order': False, 'shape': (3,)}",
    ],
)
def test_any_header_of_an_array_is_refused_as_damaged(text: bytes) -> None:
    with pytest.raises(DAMAGED_ARRAYS) as caught:
        read_arrays(archive_with("y.npy", header(text)))
    assert "'y.npy'" in str(caught.value)
    assert "pickle" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_fewer_numbers_than_a_header_declares_are_refused_before_they_are_read() -> None:
    text = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000,)}\n"
    with pytest.raises(ValueError, match="holds 8 bytes of numbers, and its header declares"):
        read_arrays(archive_with("y.npy", header(text) + bytes(8)))


@pytest.mark.parametrize(
    "method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA], ids=str
)
def test_damage_inside_a_compressed_member_is_known(method: int) -> None:
    content = bytes(range(256)) * 8
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr("x", content)
    whole = file.getvalue()
    refused = 0
    for at in range(31, whole.index(b"PK\x01\x02")):
        damaged = whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :]
        try:
            with zipfile.ZipFile(io.BytesIO(damaged)) as archive:
                assert archive.read("x") == content  # unused bits
        except DAMAGED_ZIP:
            refused += 1
    assert refused


def test_a_damaged_image_is_named(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    from PIL import Image

    path = tmp_path / "class" / "image.png"
    path.parent.mkdir()
    Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(path)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"IDAT", b"I\0AT"))  # Pillow raises a SyntaxError
    with pytest.raises(InvalidDataError, match=r"image\.png is no readable image"):
        read_images(tmp_path, (3, 4, 4))


def test_what_is_no_archive_is_not_called_a_pickle(tmp_path: Path) -> None:
    path = tmp_path / "junk.npz"
    path.write_text("junk")
    with pytest.raises(ValueError, match=r"^it is no zip file$"):
        read_arrays(path)
