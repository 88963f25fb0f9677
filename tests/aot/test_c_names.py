"""Names of generated C, which people read and compilers tell apart."""

import pytest

from tvm_xengine.aot.c_names import kernel_identifier

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
