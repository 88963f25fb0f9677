"""Names of generated C, which people read and compilers tell apart."""

from pathlib import Path

import pytest

from tests.aot.examples import export, tiny_mlp
from tvm_xengine.aot import prepare
from tvm_xengine.aot.c_names import kernel_identifier
from tvm_xengine.aot.package.names import check_package_name, package_name
from tvm_xengine.aot.plan.regions import parse_regions
from tvm_xengine.errors import ExportError, InvalidPlatformError

MANY = "fused_slice_backward7" + "".join(f"_slice_backward{i}_add10" for i in range(8, 27))


@pytest.mark.parametrize(
    ("name", "called"),
    [
        ("fused_multiply_add3_tir_tanh", "net_multiply_add3_tanh"),
        ("tir_sigmoid", "net_sigmoid"),
        ("linear", "net_linear"),
        (MANY, "net_slice_backward7_slice_backward8_add10_slice_backward9"),
        ("x" * 100, "net_" + "x" * 55),
    ],
)
def test_a_kernel_is_called_by_what_it_computes(name: str, called: str) -> None:
    assert kernel_identifier("net", name) == called


@pytest.mark.parametrize("prefix", ["net", "a_rather_long_name_of_a_model"])
def test_kernels_of_many_ops_have_names_that_c11_tells_apart(prefix: str) -> None:
    assert len(f"{kernel_identifier(prefix, MANY)}_999") <= 63


def test_a_long_prefix_leaves_something_of_the_kernel() -> None:
    assert kernel_identifier("p" * 80, MANY).removeprefix("p" * 80 + "_") == "slice_backward7"


@pytest.mark.parametrize("word", ["for", "int", "math", "stdint", "log", "test", "all", "check"])
def test_no_package_is_called_by_a_word_that_others_use(word: str) -> None:
    """`math.h` would hide that of C, `check_ctx` is a function, and CMake has a target `all`."""
    assert package_name(f"models/{word}.onnx") == f"net_{word}"
    with pytest.raises(ExportError, match=f"call it e.g. net_{word}$"):
        check_package_name(word)
    check_package_name(f"net_{word}")


@pytest.mark.parametrize("word", ["while", "double", "ctx", "i", "size_t", "stack", "state"])
def test_no_region_is_called_by_a_word_of_the_code(word: str) -> None:
    with pytest.raises(InvalidPlatformError, match=f"call it e.g. {word}_memory$"):
        parse_regions(f"{word}=64KiB")
    parse_regions(f"{word}_memory=64KiB")


@pytest.mark.parametrize(
    ("regions", "said"),
    [
        ("x=64KiB", r"inputs or results named \['x'\], as regions are; rename the regions"),
        ("sram=64KiB,labels=64KiB", r"named \['labels'\]"),
        ("loss=64KiB", r"named \['loss'\]"),
        ("sram=64KiB,output=64KiB", r"named \['output'\]"),
        (
            "sram=64KiB,sram_kept=64KiB",
            "regions sram, sram_kept would share names .* sram_kept in .* rename one",
        ),
        ("sram=64KiB,sram_bytes=64KiB", "share names .* sram_bytes"),
        ("sram=64KiB,eval_sram=64KiB", "share names .* eval_sram"),
    ],
)
def test_names_that_clash_are_refused_before_the_search(
    regions: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables of one C function, or macros of its header, would be one."""
    monkeypatch.setattr(prepare, "plan_training", lambda *_: pytest.fail("it was planned"))
    with pytest.raises(InvalidPlatformError, match=said):
        export(tiny_mlp(), tmp_path / "out", regions=regions)
    assert not (tmp_path / "out").exists()
