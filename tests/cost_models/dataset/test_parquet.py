from __future__ import annotations

from dataclasses import replace

import pytest

from tests.fuzz.readers import dataset_of_two
from tvm_xengine.cost_models.dataset.dataset import DatasetFolder
from tvm_xengine.cost_models.dataset.parquet import export_parquet, import_parquet
from tvm_xengine.errors import InvalidDatasetError

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

NAMES = ("one", "two")


@pytest.fixture
def folder(tmp_path):
    return dataset_of_two(tmp_path / "kernels")


def test_everything_comes_back(tmp_path, folder):
    assert export_parquet(folder, tmp_path / "all.parquet") == 2
    assert import_parquet(tmp_path / "all.parquet", DatasetFolder(tmp_path / "new")) == 2
    again = DatasetFolder(tmp_path / "new")
    assert again.measured() == folder.measured()
    assert again.feature_names == NAMES


def test_other_tools_read_a_column_for_each_feature(tmp_path, folder):
    export_parquet(folder, tmp_path / "all.parquet")
    table = parquet.read_table(tmp_path / "all.parquet")
    assert table.column("feature.two").to_pylist() == [2.25, 2.25]
    assert table.column("rounds_us").to_pylist()[0] == [[5.0, 5.5], [4.0]]


def test_kernels_of_other_features_are_not_written(tmp_path, folder):
    record, measured = folder.measured()[0]
    folder.add(replace(record, kernel="c", features=(1.5,)), NAMES)
    folder.measurements.add(replace(measured, kernel="c"))
    with pytest.raises(InvalidDatasetError, match="found 1 of"):
        export_parquet(folder, tmp_path / "all.parquet")
    assert not (tmp_path / "all.parquet").exists()


def test_what_is_known_already_keeps_its_measurement(tmp_path, folder):
    export_parquet(folder, tmp_path / "all.parquet")
    lines = (folder.folder / "measurements.jsonl").read_text()
    import_parquet(tmp_path / "all.parquet", folder)
    assert (folder.folder / "measurements.jsonl").read_text() == lines


def test_foreign_files_are_refused(tmp_path, folder):
    (tmp_path / "text.parquet").write_text("hello")
    with pytest.raises(InvalidDatasetError, match="expected a Parquet file"):
        import_parquet(tmp_path / "text.parquet", folder)
    parquet.write_table(pyarrow.table({"x": [1]}), tmp_path / "other.parquet")
    with pytest.raises(InvalidDatasetError, match="found another table"):
        import_parquet(tmp_path / "other.parquet", folder)
    with pytest.raises(InvalidDatasetError, match="found none"):
        export_parquet(DatasetFolder(tmp_path / "empty"), tmp_path / "x.parquet")
