"""Tensors enter and leave a step with the copies that its documentation names, and no more."""

import gc

import numpy as np
import pytest
import torch
from torch import nn

import tvm_xengine as xe
from tests.api.networks import Attention, Convolutional, TwoBranches
from tests.api.relax.relax_modules import momentum_state, own_step
from tests.conftest import Compile
from tvm_xengine.model.source import as_array
from tvm_xengine.runtime.inputs import checked_inputs

IMAGES = torch.randn(4, 1, 6, 6)
LABELS = torch.tensor([0, 3, 1, 4])


def convolutional(compile_step: Compile) -> xe.Step:
    return compile_step(Convolutional(), IMAGES, loss="cross_entropy", optimizer="sgd")


def arena_holds(executable_arenas: object, pointer: int) -> bool:
    """Whether an address lies in one of the arenas."""
    assert isinstance(executable_arenas, dict)
    starts = {a._memory.address: a._memory.size_bytes for a in executable_arenas.values()}
    return any(start <= pointer < start + size for start, size in starts.items())


@pytest.mark.parametrize(
    "given",
    [
        IMAGES,
        IMAGES.numpy(),
        IMAGES.clone().requires_grad_(True),
        IMAGES.bfloat16(),
        IMAGES.half(),
    ],
    ids=["tensor", "array", "with gradient", "bfloat16", "float16"],
)
def test_a_dense_tensor_becomes_an_array_in_its_own_memory(given: object) -> None:
    address = given.data_ptr() if isinstance(given, torch.Tensor) else given.ctypes.data  # type: ignore[attr-defined]
    assert as_array(given).ctypes.data == address


def test_an_input_of_the_type_of_the_step_is_read_where_it_lies(compile_step: Compile) -> None:
    step = convolutional(compile_step)
    given = {"x": as_array(IMAGES), "labels": as_array(LABELS)}
    checked = checked_inputs(step.executable.interface, given)
    addresses = {name: array.ctypes.data for name, array in checked.items()}
    assert addresses == {"x": IMAGES.data_ptr(), "labels": LABELS.data_ptr()}


@pytest.mark.parametrize(
    "given", [IMAGES.to(memory_format=torch.channels_last), IMAGES.double(), IMAGES.flip(0).flip(0)]
)
def test_other_layouts_and_types_train_as_the_plain_one(
    compile_step: Compile, given: torch.Tensor
) -> None:
    torch.manual_seed(0)
    step = convolutional(compile_step)
    start = step.state_dict()
    expected = step(IMAGES, LABELS)
    step.load_state_dict(start)
    assert step(given, LABELS) == expected


def test_views_of_the_state_lie_in_the_arena_and_follow_every_step(compile_step: Compile) -> None:
    step = convolutional(compile_step)
    views, first = step.state_dict(copy=False), step.state_dict()
    step(IMAGES, LABELS)
    now, again = step.state_dict(), step.state_dict(copy=False)
    in_arena = [name for name in views if "num_batches" not in name]
    for name in in_arena:
        assert arena_holds(step.executable.arenas, views[name].data_ptr()), name
        assert not arena_holds(step.executable.arenas, now[name].data_ptr()), name
        assert views[name].data_ptr() == again[name].data_ptr()
        torch.testing.assert_close(views[name], now[name], rtol=0, atol=0)
    assert not torch.equal(first["fc.weight"], now["fc.weight"])


def test_a_copied_state_is_of_the_user_alone(compile_step: Compile) -> None:
    step = convolutional(compile_step)
    first, second = step.state_dict(), step.state_dict()
    pointers = [value.data_ptr() for state in (first, second) for value in state.values()]
    assert len(set(pointers)) == len(pointers)
    first["fc.weight"].zero_()
    assert step.state_dict()["fc.weight"].abs().sum() > 0


@pytest.mark.slow
def test_tied_names_share_a_tensor_as_in_pytorch(compile_step: Compile) -> None:
    step = compile_step(Attention(), torch.randint(0, 11, (4, 3)), loss="cross_entropy")
    for copy in (True, False):
        state = step.state_dict(copy=copy)
        assert state["head.weight"].data_ptr() == state["embedding.weight"].data_ptr()


def test_views_outlive_their_step(compile_step: Compile) -> None:
    step = convolutional(compile_step)
    step(IMAGES, LABELS)
    views, copied = step.state_dict(copy=False), step.state_dict()
    losses, loss = step.result_views, step.results["loss"]
    del step
    gc.collect()
    for name, value in copied.items():
        assert torch.equal(views[name], value)
    assert losses["loss"] == torch.tensor(loss)


def test_predictions_are_of_the_user_alone_unless_views_are_asked_for(
    compile_step: Compile,
) -> None:
    step = convolutional(compile_step).eval()
    first, other = step(IMAGES), step(-IMAGES)
    assert not torch.equal(first, other)
    view = step(IMAGES, copy=False)
    assert torch.equal(view, first)
    last = step(-IMAGES, copy=False)
    assert last.data_ptr() == view.data_ptr()
    assert torch.equal(view, other)
    assert first.data_ptr() not in (view.data_ptr(), other.data_ptr())


def test_views_of_predictions_keep_the_structure_of_the_model(compile_step: Compile) -> None:
    left, right = torch.randn(4, 4), torch.randn(4, 3)

    def loss(outputs: dict[str, torch.Tensor], labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs["main"] + outputs["aux"], labels)

    step = compile_step(
        TwoBranches(), (left, right), loss=loss, example_targets=torch.tensor([0, 1, 1, 0])
    )
    copied, shared = step.predict(left, right), step.predict(left, right, copy=False)
    assert list(copied) == list(shared) == ["main", "aux"]
    for name in copied:
        assert torch.equal(copied[name], shared[name])


def test_an_input_called_copy_is_given_by_position_or_in_a_mapping(compile_step: Compile) -> None:
    class Copies(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, copy: torch.Tensor) -> torch.Tensor:
            return self.layer(copy)

    x = torch.randn(2, 4)
    step = compile_step(Copies(), x, loss="cross_entropy").eval()
    with pytest.raises(TypeError, match="expected True or False for copy"):
        step(copy=x)
    assert torch.equal(step(x), step({"copy": x}))


def test_results_are_copies_and_their_views_the_latest(compile_step: Compile) -> None:
    step = compile_step(own_step(), params=momentum_state())
    assert not step.results and not step.result_views
    random = np.random.default_rng(0)
    x, y = (random.standard_normal(shape).astype("float32") for shape in ((8, 4), (8, 3)))
    step(x, y, rate=0.1)
    first, views = step.results, step.result_views
    guess = first["guess"].copy()
    np.testing.assert_array_equal(views["guess"], guess)
    step(-x, y, rate=0.1)
    np.testing.assert_array_equal(first["guess"], guess)
    np.testing.assert_array_equal(views["guess"], step.results["guess"])
    assert not np.array_equal(step.results["guess"], guess)
    assert not views["guess"].flags.writeable
    assert arena_holds(step.executable.arenas, views["guess"].ctypes.data)
    state = step.state_dict(copy=False)
    assert not state["w"].flags.writeable
    np.testing.assert_array_equal(state["w"], step.state_dict()["w"])


def test_views_have_the_type_of_short_floats(compile_step: Compile) -> None:
    module = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    module.register_buffer("scale", torch.ones(2, dtype=torch.bfloat16))
    module.register_buffer("mask", torch.tensor([True, False]))
    step = compile_step(module, torch.randn(4, 6), loss="cross_entropy")
    for copy in (True, False):
        state = step.state_dict(copy=copy)
        types = {name: value.dtype for name, value in state.items()}
        assert types == {name: value.dtype for name, value in module.state_dict().items()}
