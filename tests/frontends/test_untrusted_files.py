"""Model files that were crafted to run code, to read other files or to exhaust memory are refused."""

import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.frontends.onnx.read import from_onnx
from tvm_xengine.frontends.torch import importer
from tvm_xengine.frontends.torch.program.archive import _is_operator
from tvm_xengine.frontends.torch.read import from_torch_export

Members = dict[str, bytes]


class Payload:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.path,))


@pytest.fixture(scope="module")
def members() -> Members:
    """A program as torch.export.save writes it."""
    import io

    module = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 5))
    buffer = io.BytesIO()
    torch.export.save(torch.export.export(module, (torch.zeros(4, 6),)), buffer)
    with zipfile.ZipFile(buffer) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def written(path: Path, members: Members, root: str = "model/") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(root + name, content)
    return path


def changed(members: Members, name: str, change: Callable[[dict], None]) -> Members:  # type: ignore[type-arg]
    document = json.loads(members[name])
    change(document)
    return {**members, name: json.dumps(document).encode()}


WEIGHTS, CONSTANTS = (
    "data/weights/model_weights_config.json",
    "data/constants/model_constants_config.json",
)
PROGRAM, INPUTS = "models/model.json", "data/sample_inputs/model.pt"


def pickled_weight(members: Members, code: bytes) -> Members:
    def change(document: dict) -> None:  # type: ignore[type-arg]
        document["config"]["0.weight"]["use_pickle"] = True

    return {**changed(members, WEIGHTS, change), "data/weights/weight_0": code}


def opaque_constant(members: Members, code: bytes) -> Members:
    entry = {
        "path_name": "opaque_obj_0",
        "is_param": False,
        "use_pickle": True,
        "tensor_meta": None,
    }

    def change(document: dict) -> None:  # type: ignore[type-arg]
        document["config"]["c"] = entry

    return {**changed(members, CONSTANTS, change), "data/constants/opaque_obj_0": code}


def opaque_by_path(members: Members, code: bytes) -> Members:
    """The path decides what PyTorch unpickles, whatever `use_pickle` says."""

    def change(document: dict) -> None:  # type: ignore[type-arg]
        document["config"]["c"] = {
            "path_name": "opaque_obj_0",
            "is_param": False,
            "use_pickle": False,
            "tensor_meta": None,
        }

    return {**changed(members, CONSTANTS, change), "extra/opaque_obj_0": code}


def legacy_weights(members: Members, code: bytes) -> Members:
    return {**members, "data/weights/model.pt": code}


def sample_inputs(members: Members, code: bytes) -> Members:
    return {**members, INPUTS: code}


def compiled_library(members: Members, code: bytes) -> Members:
    return {**members, "data/aotinductor/model/model.so": code}


def evaluated_size(members: Members, code: bytes) -> Members:
    def change(document: dict) -> None:  # type: ignore[type-arg]
        values = document["graph_module"]["graph"]["tensor_values"]
        meta = next(iter(values.values()))
        meta["sizes"][0] = {
            "as_expr": {"expr_str": "__import__('os').system('touch hit')", "hint": {"as_int": 4}}
        }

    return changed(members, PROGRAM, change)


def endless_size(members: Members, code: bytes) -> Members:
    def change(document: dict) -> None:  # type: ignore[type-arg]
        values = document["graph_module"]["graph"]["tensor_values"]
        meta = next(iter(values.values()))
        meta["sizes"][0] = {"as_expr": {"expr_str": "9**9**9**9", "hint": {"as_int": 4}}}

    return changed(members, PROGRAM, change)


def other_function(members: Members, code: bytes) -> Members:
    def change(document: dict) -> None:  # type: ignore[type-arg]
        document["graph_module"]["graph"]["nodes"][0]["target"] = "torch.hub.os.system"

    return changed(members, PROGRAM, change)


def huge_weight(members: Members, code: bytes) -> Members:
    def change(document: dict) -> None:  # type: ignore[type-arg]
        meta = document["config"]["0.weight"]["tensor_meta"]
        meta["sizes"] = [{"as_int": 10**6}, {"as_int": 10**6}]

    return {**changed(members, WEIGHTS, change), "data/weights/weight_0": b""}


def expanded_weight(members: Members, code: bytes) -> Members:
    def change(document: dict) -> None:  # type: ignore[type-arg]
        meta = document["config"]["0.weight"]["tensor_meta"]
        meta["sizes"] = [{"as_int": 10**6}, {"as_int": 10**6}]
        meta["strides"] = [{"as_int": 0}, {"as_int": 0}]

    return changed(members, WEIGHTS, change)


CRAFTED = [
    pickled_weight,
    opaque_constant,
    opaque_by_path,
    legacy_weights,
    sample_inputs,
    compiled_library,
    evaluated_size,
    endless_size,
    other_function,
    huge_weight,
    expanded_weight,
]


@pytest.mark.parametrize("craft", CRAFTED)
def test_a_crafted_archive_is_refused_before_anything_of_it_runs(
    craft: Callable[[Members, bytes], Members],
    members: Members,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    recwarn: pytest.WarningsRecorder,
) -> None:
    monkeypatch.chdir(tmp_path)
    hit = tmp_path / "hit"
    path = written(tmp_path / "model.pt2", craft(members, pickle.dumps(Payload(hit))))
    with pytest.raises(UnsupportedModelError, match=r"refused|damaged"):
        from_torch_export(path)
    assert not hit.exists()
    assert not recwarn.list


@pytest.mark.parametrize(
    "name",
    ["serialized_state_dict.pt", "serialized_constants.pt", "serialized_example_inputs.pt"],
)
def test_an_archive_of_the_older_format_that_would_be_unpickled_is_refused(
    name: str, members: Members, tmp_path: Path
) -> None:
    hit = tmp_path / "hit"
    old = {
        "version": b"8.8",
        "serialized_exported_program.json": members[PROGRAM],
        name: pickle.dumps(Payload(hit)),
    }
    path = written(tmp_path / "model.pt2", old, root="")
    with pytest.raises(UnsupportedModelError, match="unpickled"):
        from_torch_export(path)
    assert not hit.exists()


def test_a_file_that_is_replaced_once_it_was_checked_is_not_loaded(
    members: Members, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, ran = written(tmp_path / "model.pt2", members), tmp_path / "ran"
    check = importer.check_archive

    def replaced_then(*checked: object) -> None:
        check(*checked)
        sample_inputs = {"data/sample_inputs/model.pt": pickle.dumps(Payload(ran))}
        written(path, {**members, **sample_inputs})

    monkeypatch.setattr(importer, "check_archive", replaced_then)
    assert from_torch_export(path).parameters
    assert not ran.exists()


def test_members_with_equal_names_are_refused(members: Members, tmp_path: Path) -> None:
    path = written(tmp_path / "model.pt2", members)
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("model/" + INPUTS, members[INPUTS])
    with pytest.raises(UnsupportedModelError, match="equal names"):
        from_torch_export(path)


def test_a_member_that_unpacks_to_gigabytes_is_refused(members: Members, tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr("model/" + name, content)
        archive.writestr("model/extra/bomb", bytes(200 << 20))
    with pytest.raises(UnsupportedModelError, match="unpack to"):
        from_torch_export(path)


def test_what_torch_saves_is_read(members: Members, tmp_path: Path) -> None:
    assert from_torch_export(written(tmp_path / "model.pt2", members)).batch_size == 4


def model_with_external(location: str, **place: int) -> onnx.ModelProto:
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4, 3])
    weight.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **place}.items():
        weight.external_data.add(key=key, value=str(value))
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "model",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
        [weight],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "models"
    inside.mkdir()
    values = np.arange(12, dtype="float32").tobytes()
    for path in (inside / "w.bin", tmp_path / "secret.bin"):
        path.write_bytes(values)
    (inside / "link.bin").symlink_to(tmp_path / "secret.bin")
    (inside / "out").symlink_to(tmp_path)
    return inside


def saved(folder: Path, location: str, **place: int) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model_with_external(location, **place).SerializeToString())
    return path


def test_a_program_that_changes_types_is_read(tmp_path: Path) -> None:
    class Net(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x.to(torch.float64).to(torch.float32))

    path = tmp_path / "net.pt2"
    program = torch.export.export(Net(3, 2), (torch.randn(4, 3),))
    assert "_assert_tensor_metadata" in str(program.graph)
    torch.export.save(program, path)
    assert from_torch_export(path).trained == ("weight", "bias")


@pytest.mark.parametrize("name", ["_dir.append", "__class__.mro", "_made_up.default"])
def test_a_private_name_that_is_no_operator_is_refused(name: str) -> None:
    assert not _is_operator(f"torch.ops.aten.{name}")


def test_external_data_beside_the_model_are_read(folder: Path) -> None:
    model = from_onnx(saved(folder, "w.bin"))
    assert sum(array.sum() for array in model.state.values()) == sum(range(12))


@pytest.mark.parametrize(
    "location",
    [
        "../secret.bin",
        "link.bin",
        "out/secret.bin",
        "{folder}/../secret.bin",
        "a/../../secret.bin",
        "",
    ],
)
def test_external_data_outside_the_models_folder_are_refused(folder: Path, location: str) -> None:
    with pytest.raises(UnsupportedModelError, match="outside the model's folder"):
        from_onnx(saved(folder, location.format(folder=folder)))


@pytest.mark.parametrize(
    ("location", "place"),
    [
        ("missing.bin", {}),
        (".", {}),
        ("w.bin", {"offset": 1 << 40}),
        ("w.bin", {"length": 1 << 40}),
        ("w.bin", {"offset": -8}),
    ],
)
def test_external_data_that_are_not_there_are_refused(
    folder: Path, location: str, place: dict[str, int]
) -> None:
    with pytest.raises(UnsupportedModelError, match=r"no such file|bytes|number|outside"):
        from_onnx(saved(folder, location, **place))
