"""Training data from every kind of source, and what is refused."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import tvm_xengine as xe
from tvm_xengine.data import npz
from tvm_xengine.data.arrays import Data
from tvm_xengine.data.load import Wanted, load_data
from tvm_xengine.errors import InvalidDataError
from tvm_xengine.scheduling.value_range import ValueRange

IMAGES = Wanted({"image": ((4, 1, 6, 5), "float32")}, {"labels": ((4,), "int64")})


def digits_like(count: int = 10) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {
        "x": random.normal(size=(count, 1, 6, 5)),
        "y": random.integers(0, 3, count),
    }


def test_an_npz_file_names_its_arrays_x_and_y_or_like_the_model(tmp_path: Path) -> None:
    arrays = digits_like()
    np.savez(tmp_path / "a.npz", **arrays)
    np.savez(tmp_path / "b.npz", image=arrays["x"], labels=arrays["y"])
    found = [load_data(str(tmp_path / name), IMAGES) for name in ("a.npz", "b.npz")]
    for data in found:
        assert data.train["image"].dtype == np.float32
        np.testing.assert_array_equal(data.train["labels"], arrays["y"])


@pytest.mark.parametrize(
    "values",
    [np.full((4, 1, 6, 5), "1"), np.ones((4, 1, 6, 5), complex), np.zeros((4, 1, 6, 5), "M8[s]")],
)
def test_what_is_no_real_number_is_refused(values: np.ndarray, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=values, y=np.zeros(4, np.int64))
    with pytest.raises(InvalidDataError, match=r"image holds .*, the model takes real numbers"):
        load_data(str(tmp_path / "a.npz"), IMAGES)


def test_whole_numbers_as_floats_are_refused_with_the_conversion(tmp_path: Path) -> None:
    arrays = digits_like()
    np.savez(tmp_path / "a.npz", x=arrays["x"], y=arrays["y"].astype(np.float32))
    with pytest.raises(InvalidDataError, match=r"convert them, as labels\.astype\('int64'\) does"):
        load_data(str(tmp_path / "a.npz"), IMAGES)


def test_numbers_that_the_type_does_not_hold_are_refused_by_sample(tmp_path: Path) -> None:
    arrays = digits_like()
    arrays["x"][3, 0, 2, 1] = 1e300
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(InvalidDataError, match=r"float32 can hold, got 1e\+300 in sample 3"):
        load_data(str(tmp_path / "a.npz"), IMAGES)


@pytest.mark.parametrize("part", ["training", "validation"])
def test_samples_that_are_not_finite_are_found_before_training(part: str) -> None:
    arrays = {name: array.astype(np.float32) for name, array in digits_like().items()}
    spoilt = {**arrays, "x": arrays["x"].copy()}
    spoilt["x"][3, 0, 2, 1] = np.nan
    data = Data(*((spoilt, arrays) if part == "training" else (arrays, spoilt)))
    with pytest.raises(InvalidDataError, match=f"x holds nan in the {part} sample 3"):
        data.check_finite()
    Data(arrays, arrays).check_finite()


def test_the_file_of_the_validation_is_named(tmp_path: Path) -> None:
    good, spoilt = tmp_path / "good.npz", tmp_path / "spoilt.npz"
    rows, labels = np.zeros((4, 2), np.float32), np.zeros(4, np.int64)
    np.savez(good, x=rows, y=labels)
    np.savez(spoilt, x=np.full_like(rows, np.nan), y=labels)
    training = xe.training_step(nn.Linear(2, 3), torch.zeros(4, 2), loss="cross_entropy")
    data = xe.training_data(training, str(good), str(spoilt))
    with pytest.raises(InvalidDataError, match=r"spoilt\.npz: input holds nan in the validation"):
        data.check_finite()


def test_bytes_are_taken_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    arrays = digits_like()
    np.savez(tmp_path / "a.npz", x=np.full((10, 1, 6, 5), 200, np.uint8), y=arrays["y"])
    assert load_data(str(tmp_path / "a.npz"), IMAGES).train["image"].max() == 200
    assert "image holds bytes up to 200" in caplog.text


def test_arrays_that_begin_with_validation_are_held_out(tmp_path: Path) -> None:
    arrays, held_out = digits_like(), digits_like(3)
    np.savez(tmp_path / "a.npz", **arrays, validation_x=held_out["x"], validation_y=held_out["y"])
    assert len(load_data(str(tmp_path / "a.npz"), IMAGES).validation["labels"]) == 3


def test_pickled_objects_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.array([{"code": 1}], object), y=np.zeros(1, np.int64))
    with pytest.raises(InvalidDataError, match="plain arrays"):
        load_data(str(tmp_path / "a.npz"), IMAGES)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"x": np.zeros((10, 1, 7, 5))}, "samples of shape"),
        ({"y": np.zeros(10)}, "whole numbers"),
        ({"y": np.zeros(9, np.int64)}, "one entry per sample"),
        ({"z": np.zeros(10)}, "the model takes image, labels"),
        ({"x": np.zeros((0, 1, 6, 5)), "y": np.zeros(0, np.int64)}, "at least one"),
    ],
)
def test_data_that_does_not_fit_is_refused_with_what_the_model_takes(
    tmp_path: Path, change: dict[str, np.ndarray], said: str
) -> None:
    np.savez(tmp_path / "a.npz", **{**digits_like(), **change})
    with pytest.raises(InvalidDataError, match=said):
        load_data(str(tmp_path / "a.npz"), IMAGES)


def test_what_does_not_fit_is_refused_before_its_numbers_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = digits_like()
    np.savez(tmp_path / "a.npz", x=arrays["x"].astype(str), y=arrays["y"])
    np.savez(tmp_path / "b.npz", x=arrays["x"][:, :, 1:], y=arrays["y"])
    np.savez(tmp_path / "c.npz", x=arrays["x"], y=arrays["y"][1:])
    monkeypatch.setattr(npz, "read_arrays", lambda _path: pytest.fail("it was read"))
    for name in "abc":
        with pytest.raises(InvalidDataError, match=rf"{name}\.npz: "):
            load_data(str(tmp_path / f"{name}.npz"), IMAGES)


@pytest.mark.parametrize("source", ["absent.npz", "nothing", "no.such.module:data", "json:absent"])
def test_a_source_that_is_not_there_is_named(source: str) -> None:
    with pytest.raises(InvalidDataError, match=source.replace(".", r"\.")):
        load_data(source, IMAGES)


def test_a_function_of_the_user_makes_the_data(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "my_data_source.py").write_text(
        "import numpy as np\n"
        "def pair():\n    return np.ones((8, 1, 6, 5)), np.arange(8)\n"
        "def split():\n    return dict(x=np.ones((8, 1, 6, 5)), y=np.arange(8)), "
        "dict(x=np.ones((2, 1, 6, 5)), y=np.arange(2))\n"
        "def wrong():\n    return 'text'\n"
    )
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    assert load_data("my_data_source:pair", IMAGES).samples == 8
    assert len(load_data("my_data_source:split", IMAGES).validation["image"]) == 2
    with pytest.raises(InvalidDataError, match="returned str"):
        load_data("my_data_source:wrong", IMAGES)
    assert sys.path == path


@pytest.mark.parametrize("kind", ["generator", "loader", "mappings"])
def test_batches_of_a_function_are_joined(kind: str, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / f"my_{kind}.py").write_text(
        "import numpy as np\n"
        "def batches():\n"
        "    for k in range(2):\n        yield np.full((4, 1, 6, 5), k), np.arange(4) + k\n"
        "def generator():\n    return batches()\n"
        "def mappings():\n    return [dict(x=x, y=y) for x, y in batches()]\n"
        "def loader():\n    import torch\n    from torch.utils.data import DataLoader as L\n"
        "    x, y = (torch.cat([torch.as_tensor(a) for a in part]) for part in zip(*batches()))\n"
        "    return L(torch.utils.data.TensorDataset(x, y), batch_size=3)\n"
    )
    monkeypatch.chdir(tmp_path)
    data = load_data(f"my_{kind}:{kind}", IMAGES)
    np.testing.assert_array_equal(data.train["labels"], [0, 1, 2, 3, 1, 2, 3, 4])
    np.testing.assert_array_equal(data.train["image"].mean((1, 2, 3)), [0] * 4 + [1] * 4)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("yield 1, 2\n    raise KeyError('torn')", "batch 0 is a tuple"),
        ("yield np.ones((1, 1, 6, 5)), np.ones(1)\n    raise KeyError('torn')", "KeyError: 'torn'"),
        ("yield from ()", "no batches"),
        ("yield dict(x=np.ones(1))\n    yield dict(z=np.ones(1))", r"batch 1 has \['z'\]"),
        ("while True: yield np.ones((2**20, 8)), np.ones(2**20)", "batches must end"),
    ],
)
def test_batches_that_cannot_be_joined_are_refused(
    body: str, message: str, tmp_path: Path, monkeypatch
) -> None:
    module = f"my_batches_{abs(hash(body))}"
    (tmp_path / f"{module}.py").write_text(f"import numpy as np\ndef f():\n    {body}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tvm_xengine.data.function._most_bytes", lambda: 10**8)
    with pytest.raises(InvalidDataError, match=message):
        load_data(f"{module}:f", IMAGES)


def test_a_class_without_images_is_refused(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for label in ("cat", "dog", "owl"):
        (tmp_path / label).mkdir()
        if label != "owl":
            image.new("RGBA", (3, 17)).save(tmp_path / label / "1.png")
    with pytest.raises(InvalidDataError, match="owl"):
        load_data(str(tmp_path), IMAGES)
    (tmp_path / "owl").rmdir()
    assert load_data(str(tmp_path), IMAGES).samples == 2


def test_a_folder_of_images_has_a_class_for_each_subfolder(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for part, count in (("train", 3), ("val", 1)):
        for label, shade in (("cat", 0), ("dog", 255)):
            folder = tmp_path / part / label
            folder.mkdir(parents=True)
            for k in range(count):
                image.new("L", (9, 9), shade).save(folder / f"{k}.png")
    data = load_data(str(tmp_path), IMAGES)
    assert data.train["image"].shape == (6, 1, 6, 5)
    np.testing.assert_array_equal(data.train["labels"], [0, 0, 0, 1, 1, 1])
    np.testing.assert_array_equal(data.train["image"].mean((1, 2, 3)), [0, 0, 0, 1, 1, 1])
    assert len(data.validation["labels"]) == 2
    (tmp_path / "train" / "cat" / "9.png").write_bytes(b"no image")
    with pytest.raises(InvalidDataError, match=r"9\.png"):
        load_data(str(tmp_path), IMAGES)


def test_another_folder_is_labelled_by_the_classes_of_the_training_samples(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for part, labels in (("train", "abc"), ("other", "bc"), ("strange", "bx")):
        for label in labels:
            (tmp_path / part / label).mkdir(parents=True)
            image.new("L", (5, 6)).save(tmp_path / part / label / "1.png")
    images = torch.zeros(2, 1, 6, 5)
    module = nn.Sequential(nn.Flatten(), nn.Linear(30, 3))
    training = xe.training_step(module, images, loss="cross_entropy")
    data = xe.training_data(training, str(tmp_path / "train"), str(tmp_path / "other"))
    np.testing.assert_array_equal(data.validation["labels"], [1, 2])
    with pytest.raises(InvalidDataError, match=r"strange: the classes \['x'\] are not among those"):
        xe.training_data(training, str(tmp_path / "train"), str(tmp_path / "strange"))


def test_fewer_classes_than_those_of_the_model_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    image = pytest.importorskip("PIL.Image")
    for label in ("cat", "dog"):
        (tmp_path / label).mkdir()
        image.new("L", (5, 6)).save(tmp_path / label / "1.png")
    for count, said in ((2, ""), (3, "3 classes apart, and 2 are here")):
        caplog.clear()
        load_data(str(tmp_path), replace(IMAGES, ranges={"labels": ValueRange(0, count - 1)}))
        assert said in caplog.text and bool(said) == bool(caplog.text)


@pytest.mark.parametrize("channels", [1, 3])
def test_images_of_16_bits_keep_their_shades(channels: int, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    shades = np.linspace(0, 65535, 30).astype(np.uint16).reshape(6, 5)
    (tmp_path / "class").mkdir()
    image.fromarray(shades).save(tmp_path / "class" / "1.png")
    wanted = replace(IMAGES, inputs={"image": ((4, channels, 6, 5), "float32")})
    for found in load_data(str(tmp_path), wanted).train["image"][0]:
        np.testing.assert_allclose(found, shades / 65535, atol=0.5 / 255 + 1e-6)


def test_an_epoch_visits_every_sample_once_and_can_start_in_the_middle() -> None:
    data = Data({"x": np.arange(10), "y": np.arange(10)})
    whole = [batch["x"].tolist() for batch in data.epoch(3, 5, seed=7)]
    assert sorted(x for batch in whole for x in batch) == list(range(10))
    assert [batch["x"].tolist() for batch in data.epoch(3, 5, seed=7, start=1)] == whole[1:]
    assert [batch["x"].tolist() for batch in data.epoch(4, 5, seed=7)] != whole


@pytest.mark.parametrize("count", [1, 4, 5, 9])
def test_validation_batches_are_full_and_say_how_many_samples_count(count: int) -> None:
    """Tokens with a label each, whose labels have an axis of their own."""
    tokens = {"x": np.zeros((count, 3)), "y": np.zeros((count, 3), np.int64)}
    batches = list(Data(tokens, tokens).validation_batches(4))
    assert all(batch["y"].shape == (4, 3) for batch, _ in batches)
    assert sum(counted for _, counted in batches) == count


def test_a_held_out_share_is_disjoint_from_the_rest() -> None:
    data = Data({"x": np.arange(10), "y": np.arange(10)}).with_validation(0.3, seed=1)
    assert sorted([*data.train["x"], *data.validation["x"]]) == list(range(10))
    assert len(data.validation["x"]) == 3
    with pytest.raises(InvalidDataError, match="share"):
        data.with_validation(1.0, seed=1)


def test_too_few_samples_for_a_batch_are_refused() -> None:
    with pytest.raises(InvalidDataError, match="do not fill one batch of 16"):
        Data({"x": np.zeros(4)}).batches_per_epoch(16)


def test_labels_of_tokens_are_joined_in_a_batch(tmp_path: Path) -> None:
    tokens = np.arange(12).reshape(4, 3)
    np.savez(tmp_path / "tokens.npz", x=tokens, y=tokens)
    wanted = Wanted({"x": ((2, 3), "int64")}, {"labels": ((6,), "int64")})
    data = load_data(str(tmp_path / "tokens.npz"), wanted)
    for batch in data.epoch(0, 2, seed=0):
        assert batch["x"].shape == (2, 3)
        np.testing.assert_array_equal(batch["labels"], batch["x"].ravel())
    held_out = data.with_validation(0.25, seed=0)
    ((batch, counted),) = held_out.validation_batches(2)
    assert (batch["labels"].shape, counted) == ((6,), 1)


def test_labels_that_the_step_cannot_read_are_refused_with_the_sample(tmp_path: Path) -> None:
    wanted = replace(IMAGES, ranges={"labels": ValueRange(0, 2, (-100,))})
    arrays = digits_like()
    arrays["y"] = np.array([0, -100, 2, 1, 3, 1, 1, 1, 1, 4])
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(
        InvalidDataError, match=r"labels must be in 0\.\.2 or -100, got 3 in sample 4$"
    ):
        load_data(str(tmp_path / "a.npz"), wanted)
    arrays["y"] = np.array([1, 2, 3, 1, 2, 3, 1, 2, 3, 1])
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(InvalidDataError, match=r"got 3 in sample 2; they seem to count from 1"):
        load_data(str(tmp_path / "a.npz"), wanted)
    counted_from_minus_1 = replace(wanted, ranges={"labels": ValueRange(-1, 2)})
    np.savez(tmp_path / "b.npz", **{**arrays, "y": arrays["y"] - (arrays["y"] < 3)})
    with pytest.raises(InvalidDataError, match=r"got 3 in sample 2$"):
        load_data(str(tmp_path / "b.npz"), counted_from_minus_1)
    arrays["y"] = np.array([0, -100] * 5)
    np.savez(tmp_path / "a.npz", **arrays)
    assert load_data(str(tmp_path / "a.npz"), wanted).samples == 10
