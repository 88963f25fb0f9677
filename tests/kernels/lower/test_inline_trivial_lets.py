"""Lets that only rename disappear; the others stay."""

import tvm
from tvm import ir, tirx

from tvm_xengine.kernels.lower.inline_trivial_lets import InlineTrivialLets


def _stored(value: ir.Expr, x: ir.Var, position: ir.Var) -> tvm.IRModule:
    store = tirx.BufferStore(x, value, [position])
    body = tirx.For(position, 0, 8, tirx.ForKind.SERIAL, store)
    return tvm.IRModule({"main": tirx.PrimFunc([x], body)})


def _inlined(build) -> tuple[tvm.IRModule, tvm.IRModule]:
    """What becomes of the first of two values of an element, and the second."""
    x, position = tirx.decl_buffer((8,), "int32", name="x"), ir.Var("i", "int32")
    before, expected = build(x, position)
    made = tvm.transform.Sequential([InlineTrivialLets()])(_stored(before, x, position))
    return made, _stored(expected, x, position)


def test_a_let_of_a_variable_is_the_variable() -> None:
    def build(x, i):
        word = ir.Var("word", "int32")
        return tirx.Let(word, i, word * word), i * i

    tvm.ir.assert_structural_equal(*_inlined(build))


def test_a_let_of_a_let_of_a_constant_is_the_constant() -> None:
    def build(x, i):
        word, other = ir.Var("word", "int32"), ir.Var("other", "int32")
        three = tirx.IntImm("int32", 3)
        return tirx.Let(word, tirx.Let(other, three, other), i + word), i + three

    tvm.ir.assert_structural_equal(*_inlined(build))


def test_a_let_in_the_value_of_another_disappears_alone() -> None:
    def build(x, i):
        word, other = ir.Var("word", "int32"), ir.Var("other", "int32")
        return (
            tirx.Let(word, tirx.Let(other, i, other * other), word + word),
            tirx.Let(word, i * i, word + word),
        )

    tvm.ir.assert_structural_equal(*_inlined(build))


def test_a_let_of_an_element_stays() -> None:
    def build(x, i):
        word = ir.Var("word", "int32")
        let = tirx.Let(word, tirx.BufferLoad(x, [i]), word * word)
        return let, let

    tvm.ir.assert_structural_equal(*_inlined(build))
