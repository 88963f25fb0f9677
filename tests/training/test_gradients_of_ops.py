"""Every op with a gradient rule agrees with PyTorch's autograd and with finite differences.

Attributes, shapes and operands are drawn; everything is computed in float64. Many cases are
compiled as one function, since that costs less than a tenth of a second per case.
"""

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.shares import share
from tests.training.cases import FAMILIES
from tests.training.cases.case import Case, case_strategy
from tests.training.cases.check import check_cases
from tvm_xengine.relax_ir.hints import HINTS
from tvm_xengine.relax_ir.own_ops import RUNNING_EXTREME
from tvm_xengine.training.composites import COMPOSITES
from tvm_xengine.training.gradients.rules import RULES, WITHOUT_GRADIENT

NamedCase = tuple[str, Case]

drawn = settings(
    derandomize=True,
    database=None,
    # A failing batch says which case is wrong; compiling it again and again would not tell more.
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def _one_of_each(family: str, every: int) -> st.SearchStrategy[list[NamedCase]]:
    sources = _sources(family)[::every]
    return st.tuples(*(_named(name, position) for name, position in sources)).map(list)


def _sources(family: str) -> list[tuple[str, int]]:
    return [(name, k) for name, draws in FAMILIES[family].items() for k in range(len(draws))]


def _named(name: str, position: int) -> st.SearchStrategy[NamedCase]:
    (draws,) = (cases[name] for cases in FAMILIES.values() if name in cases)
    return case_strategy(draws[position]).map(lambda case: (name, case))


FAST = [(family, 4) for family in FAMILIES if family not in ("matrices", "pointwise")]
"""Of each family an op of so many; the rules of the other two are those of SciPy's functions."""


def _check(cases: Sequence[NamedCase]) -> None:
    checked = check_cases(cases)
    assert not checked.errors, "\n".join(checked.errors)
    absent = {_full(name) for name, _ in cases} - checked.ops
    assert not absent, f"these cases do not exercise their op: {absent}"


def _full(name: str) -> str:
    return name if name.startswith("tvm_xengine.") else f"relax.{name}"


@pytest.mark.parametrize(
    ("family", "every"), share([*FAST, *((family, 1) for family in FAMILIES)], FAST)
)
def test_gradients_are_those_of_autograd_and_of_finite_differences(family: str, every: int) -> None:
    @settings(drawn, max_examples=2)
    @given(_one_of_each(family, every))
    def check(cases: list[NamedCase]) -> None:
        _check(cases)

    check()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "position"), [source for family in FAMILIES for source in _sources(family)]
)
def test_many_draws_of_an_op(name: str, position: int) -> None:
    @settings(drawn, max_examples=12)
    @given(st.lists(_named(name, position), min_size=5, max_size=5))
    def check(cases: list[NamedCase]) -> None:
        _check(cases)

    check()


CONSTANT_COMPOSITES = {"relax.full", "relax.full_like"}
"""Taken apart where they are infinite, for TVM's kernel, not for a gradient."""


def test_every_rule_has_cases() -> None:
    tested = {_full(name) for cases in FAMILIES.values() for name in cases}
    without = WITHOUT_GRADIENT - {"relax.argsort", "relax.grad.no_grad", RUNNING_EXTREME}
    assert (set(RULES) | set(COMPOSITES)) - CONSTANT_COMPOSITES - without - set(HINTS) == tested


def test_no_op_has_a_rule_and_none() -> None:
    negations = {f"relax.{name}" for name in ("logical_not", "logical_xor", "not_equal")}
    whole = {
        f"tvm_xengine.{name}"
        for name in ("floor_divide", "frexp_exponent", "place", "trunc_divide")
    }
    own = {RUNNING_EXTREME, *negations, *whole}
    assert WITHOUT_GRADIENT & set(RULES) == {
        *("relax.argmax", "relax.argmin", "relax.argsort", "relax.grad.no_grad"),
        *own,
    }
    assert WITHOUT_GRADIENT & set(COMPOSITES) == CONSTANT_COMPOSITES
