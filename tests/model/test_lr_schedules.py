"""Schedules of the learning rate have the values of their definition."""

from __future__ import annotations

import math

import pytest

from tvm_xengine.model.lr_schedules import beyond, named_schedule


def test_cosine_falls_from_the_rate_to_zero() -> None:
    rate = named_schedule("cosine", 0.1, 100)
    assert rate(0) == 0.1
    assert rate(50) == pytest.approx(0.05)
    assert rate(100) == pytest.approx(0.0, abs=1e-12)
    assert rate(25) == pytest.approx(0.05 * (1 + math.cos(math.pi / 4)))


def test_a_warm_up_rises_to_the_rate() -> None:
    rate = named_schedule("linear:4", 1.0, 14)
    assert [rate(step) for step in range(5)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert rate(9) == pytest.approx(0.5)
    assert named_schedule("constant:1", 1.0, 9)(5) == 1.0


def test_steps_multiply_the_rate() -> None:
    rate = named_schedule("step:3:0.5", 0.8, 9)
    assert [rate(step) for step in (0, 2, 3, 6)] == pytest.approx([0.8, 0.8, 0.4, 0.2])


def test_a_function_is_called_with_the_steps_taken() -> None:
    assert named_schedule("math:sqrt", 1.0, 9)(4) == 2.0


@pytest.mark.parametrize(
    ("text", "steps", "said"),
    [
        ("cosine:500", 2, "cosine:500 ends its warm-up after 500 steps, and this run ends after 2"),
        ("constant:9", 9, "ends its warm-up after 9 steps, and this run ends after 9"),
        ("step:30:0.1", 30, "step:30:0.1 changes the learning rate first after 30 steps"),
    ],
)
def test_what_comes_after_the_last_step_is_said(text: str, steps: int, said: str) -> None:
    assert said in beyond(text, steps)
    assert not beyond(text, 600)


@pytest.mark.parametrize("text", ["linear", "math:sqrt"])
def test_nothing_comes_after_the_last_step_without_a_number_of_steps(text: str) -> None:
    assert not beyond(text, 1)


@pytest.mark.parametrize("text", ["", "cosin", "cosine:x", "step:3", "step:x:0.5", "math:nothing"])
def test_what_names_no_schedule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        named_schedule(text, 0.1, 10)
