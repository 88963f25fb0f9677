from __future__ import annotations

import pytest

from tvm_xengine.errors import InvalidPlatformError
from tvm_xengine.kernels.targets import core_count, cpu_features, resolve_target, vector_bytes


def test_native_becomes_the_name_of_this_cpu():
    target = resolve_target("llvm -mcpu=native -num-cores=native")
    assert str(target.attrs["mcpu"]) != "native"
    assert core_count(target) >= 1


def test_text_and_mapping_mean_the_same_target():
    text = resolve_target("llvm -mcpu=x86-64 -num-cores=3")
    mapping = resolve_target({"kind": "llvm", "mcpu": "x86-64", "num-cores": 3})
    assert str(text) == str(mapping)
    assert core_count(text) == 3


def test_baseline_has_no_avx_and_one_core():
    target = resolve_target("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64")
    assert not [name for name in cpu_features(target) if name.startswith("avx")]
    assert vector_bytes(target) == 16
    assert core_count(target) == 1


def test_removed_features_narrow_the_vectors():
    full = resolve_target("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v4")
    narrow = resolve_target("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v4 -mattr=-avx512f")
    assert (vector_bytes(full), vector_bytes(narrow)) == (64, 32)


@pytest.mark.parametrize(
    ("description", "complaint"),
    [
        ("", "names no kind"),
        ("nonsense", "generates no code for kind 'nonsense'"),
        ("llvm -mcpu=bogus", "LLVM knows no CPU named 'bogus'"),
        ("llvm mcpu", "cannot read 'mcpu'"),
        ("llvm -colour=3", "Unknown config option 'colour'"),
        ("llvm -num-cores=0", "num-cores must be a number >= 1"),
        ({"mcpu": "native"}, "names no kind"),
    ],
)
def test_wrong_descriptions_say_what_is_wrong(description, complaint):
    with pytest.raises(InvalidPlatformError, match=complaint):
        resolve_target(description)
