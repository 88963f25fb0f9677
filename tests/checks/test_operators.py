"""Refusals of operators name them, say where they stand, and what can be done."""

from tvm_xengine.checks.operators import located, with_advice


def test_a_pair_of_operator_and_layer_is_named_once() -> None:
    places = [("svd", "encoder"), ("svd", "encoder"), ("gcd", "head")]
    assert located(places) == "svd (in encoder), gcd (in head)"


def test_a_long_list_says_how_much_is_left_out() -> None:
    assert located((f"op{k}", "x") for k in range(40)).endswith("and 28 more")


def test_a_reason_with_advice_of_its_own_keeps_it() -> None:
    assert with_advice("a is not b; use c", "use d") == "a is not b; use c"
    assert with_advice("a is not b", "use d") == "a is not b; use d"
