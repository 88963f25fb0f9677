"""Labels travel with the features of their kernels, and without the kernels, which are made anew exactly."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from tvm_xengine.cost_models.corpus.variants import Variant, variants
from tvm_xengine.cost_models.dataset.collect import training_kernels
from tvm_xengine.cost_models.dataset.dataset import DatasetFolder
from tvm_xengine.cost_models.dataset.sources import KernelSources, add_kernel
from tvm_xengine.cost_models.features.table import FEATURE_SET
from tvm_xengine.cost_models.labels.join import joined
from tvm_xengine.cost_models.labels.label_file import (
    Generator,
    Label,
    LabelFile,
    read_labels,
    write_labels,
)
from tvm_xengine.cost_models.labels.pack import code_of, pack
from tvm_xengine.cost_models.labels.rebuild import rebuild
from tvm_xengine.cost_models.labels.shipped import SHIPPED_LABELS
from tvm_xengine.cost_models.labels.unpack import refreshed, unpack
from tvm_xengine.cost_models.measure.measurements import Measurement
from tvm_xengine.cost_models.measure.this_machine import device_fingerprint, this_machine
from tvm_xengine.errors import InvalidDatasetError
from tvm_xengine.kernels.targets import resolve_target

TARGET = resolve_target("llvm -mcpu=x86-64")


def file_of(*labels: Label) -> LabelFile:
    generator = Generator("abc", "1.0", "0.27", ("numpy 2",), 1)
    return LabelFile(
        this_machine(), (generator,), (str(TARGET),), ('["mlp"]',), ("2026-01-01",), labels
    )


def measured_dataset(path, variant):
    """A dataset of a network with made-up times."""
    folder = DatasetFolder(path)
    for number, kernel in enumerate(training_kernels(variant, [(TARGET, ("tir",))])):
        device = device_fingerprint(TARGET)
        KernelSources(path).add(kernel, device)
        record = add_kernel(folder, kernel, device, (variant.family,), network=variant.text)
        for caches in ("cold", "hot"):
            us = (1.0 + number) * (2.0 if caches == "cold" else 1.0)
            rounds = ((us,), (1.5 * us,), (9.0 * us,))
            folder.measurements.add(
                Measurement(
                    *(record.kernel, device, record.name, us, us, 9 * us, "thread", rounds),
                    sentinels_us=(100.0, 101.0, 200.0),
                    machine=record.machine,
                    caches=caches,
                )
            )
    return folder


@pytest.fixture(scope="module")
def before(tmp_path_factory) -> DatasetFolder:
    (variant,) = islice(variants(("mlp",)), 1)
    return measured_dataset(tmp_path_factory.mktemp("before"), variant)


@pytest.mark.parametrize("read", [unpack, rebuild])
def test_features_and_times_are_those_that_were_packed(read, before, tmp_path):
    for file in pack(before):
        write_labels(file, tmp_path / "labels")
    after = DatasetFolder(tmp_path / "after")
    assert read(read_labels(tmp_path / "labels"), after) == (len(before), 0)
    old, new = before.load(), after.load()
    order = [new.kernels.index(kernel) for kernel in old.kernels]
    np.testing.assert_array_equal(new.table.values[order], old.table.values)
    np.testing.assert_array_equal(new.table.work[order], old.table.work)
    # Only the two calm rounds travel; the label is their median.
    np.testing.assert_allclose(new.time_us[order], 1.25 * old.time_us, rtol=1e-3)
    hot = [after.measurements.find(r.kernel, r.device, "hot") for r in after.records()]
    assert all(len(each.rounds_us) == 2 for each in hot)


def test_labels_of_another_day_join_those_of_the_machine(before, tmp_path):
    """Kernels that were timed again have the new times only; the others stay, each with its network."""
    (file,) = pack(before)
    other = replace(file.labels[1], network=1, code="0" * 16)
    record = replace(file.kernels[file.labels[1].code], kernel=other.code, network="[other]")
    earlier = replace(
        file,
        generators=(Generator("abc", "1.0", "0.27", ("numpy 2",), 2),),
        networks=('["gone"]', "[other]"),
        collected=("2026-01-01",),
        labels=(replace(file.labels[0], cold_us=(77.0,)), other),
        kernels={**file.kernels, other.code: record},
    )
    write_labels(earlier, tmp_path)
    write_labels(joined(read_labels(tmp_path), file), tmp_path)
    (found,) = read_labels(tmp_path)
    networks = {label.code: found.networks[label.network] for label in found.labels}
    assert networks == {other.code: "[other]"} | {
        label.code: file.networks[0] for label in file.labels
    }
    assert {label.code: label.cold_us for label in found.labels[1:]} == {
        label.code: label.cold_us for label in file.labels
    }
    assert [generator.networks for generator in found.generators] == [2, 1]
    assert found.collected == ("2026-01-01", *file.collected)
    assert len(found.kernels) == len(file.kernels) + 1


def test_labels_with_features_of_another_version_do_not_join(before):
    (file,) = pack(before)
    old = replace(file, features=replace(file.features, feature_set="kernel-v0"))
    with pytest.raises(InvalidDatasetError, match="costs refresh"):
        joined((old,), file)


def test_labels_outlive_their_kernels(before, tmp_path, monkeypatch):
    """Nothing is made of a network where the files have the features of this version."""
    (file,) = pack(before)
    monkeypatch.setattr(Variant, "build", lambda _: pytest.fail("a network is built"))
    assert unpack([file], DatasetFolder(tmp_path)) == (len(before), 0)


def test_kernels_are_made_anew_for_features_of_another_version(before, tmp_path):
    (file,) = pack(before)
    old = replace(file, features=replace(file.features, feature_set="kernel-v0"))
    folder = DatasetFolder(tmp_path)
    assert unpack([old], folder) == (len(before), 0)
    assert folder.feature_set == file.features.feature_set


@pytest.mark.parametrize(("version", "left"), [("kernel-v0", 0), (None, 1)])
def test_refreshed_labels_keep_what_is_of_this_version_and_not_made_anew(
    version, left, before, tmp_path
):
    (file,) = pack(before)
    alien = replace(file.labels[0], code="0" * 16)
    record = replace(file.kernels[file.labels[0].code], kernel=alien.code)
    features = replace(file.features, feature_set=version or file.features.feature_set)
    grown = replace(
        file,
        labels=(*file.labels, alien),
        kernels={**file.kernels, alien.code: record},
        features=features,
    )
    made = DatasetFolder(tmp_path)
    rebuild([grown], made)
    found = refreshed(grown, made)
    assert found.labels == grown.labels
    assert len(found.kernels) == len(before) + left
    assert found.features == file.features


def test_an_interrupted_rebuild_goes_on_behind_the_networks_that_are_made(before, tmp_path):
    (file,) = pack(before)
    networks = (file.networks[0], "[broken")  # the second network ends the first call
    folder = tmp_path / "after"
    with pytest.raises(InvalidDatasetError, match="broken"):
        rebuild([replace(file, networks=networks)], DatasetFolder(folder))
    made: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "tvm_xengine.cost_models.labels.rebuild.training_kernels",
            lambda *_: made.append("again") or [],
        )
        assert rebuild([file], DatasetFolder(folder)) == (len(file.labels), 0)
    assert not made


def test_a_label_of_another_generator_is_missing_and_not_another_kernels(tmp_path):
    (variant,) = islice(variants(("mlp",)), 1)
    file = replace(
        file_of(Label("0" * 16, 0, 0, "tir", "thread", (1.0,), ())), networks=(variant.text,)
    )
    folder = DatasetFolder(tmp_path)
    assert rebuild([file], folder) == (0, 1)
    assert not folder.measured()


def test_the_hash_of_a_kernel_covers_its_target():
    (variant,) = islice(variants(("mlp",)), 1)
    other = resolve_target("llvm -mcpu=haswell")
    one, two = (
        {code_of(kernel) for kernel in training_kernels(variant, [(target, ("tir",))])}
        for target in (TARGET, other)
    )
    assert one and not one & two


@pytest.mark.parametrize("variant", [*islice(variants(seed=3), 4)], ids=str)
def test_a_variant_is_known_by_its_text(variant):
    assert Variant.of_text(variant.text) == variant


def test_files_say_what_was_written(tmp_path):
    label = Label("a" * 16, 0, 0, "onednn", "thread", (1.25, 2.0), (1.0,), "brg:avx512;0;64")
    file = file_of(label)
    write_labels(file, tmp_path)
    assert read_labels(tmp_path) == (file,)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("1.25", "-1.25"),
        ("1.25", "nan"),
        (",0,0,", ",7,0,"),
        ("aaaa", 'b,0,0,tir,thread,1,1,\n"aaaa'),
        ("code,", "name,"),
    ],
)
def test_damaged_labels_are_refused_with_the_name_of_the_file(old, new, tmp_path):
    path = write_labels(file_of(Label("aaaa", 0, 0, "tir", "thread", (1.25,), (1.0,))), tmp_path)
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(InvalidDatasetError, match=path.name):
        read_labels(tmp_path)


@pytest.mark.parametrize(
    "damage", [lambda raw: raw[: len(raw) // 2], lambda _: b"PK", lambda _: b""]
)
def test_damaged_kernels_are_refused_with_the_name_of_the_file(damage, before, tmp_path):
    (file,) = pack(before)
    path = write_labels(file, tmp_path).with_suffix(".npz")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InvalidDatasetError, match=path.name):
        read_labels(tmp_path)


def test_the_shipped_labels_are_whole_and_small():
    sizes = [path.stat().st_size for path in SHIPPED_LABELS.iterdir()]
    assert sum(sizes) < 300 * sum(len(file.labels) for file in read_labels(SHIPPED_LABELS))
    for file in read_labels(SHIPPED_LABELS):
        assert len({(label.code) for label in file.labels}) == len(file.labels) > 0
        assert [Variant.of_text(text) for text in file.networks]
        assert file.features.feature_set == FEATURE_SET
        assert set(file.kernels) == {label.code for label in file.labels}


FAST_NETWORK = "mlp"


@pytest.mark.slow
@pytest.mark.parametrize("networks", [FAST_NETWORK, "all"], ids=str)
def test_shipped_features_are_those_of_the_kernels_that_did_not_change(networks, tmp_path, capsys):
    """Raise `FEATURE_SET` where this fails after a change of features; `costs refresh --labels` goes on."""
    for number, file in enumerate(read_labels(SHIPPED_LABELS)):
        wanted = [t for t in file.networks if networks in ("all", Variant.of_text(t).network)]
        anywhere = tuple(replace(label, network=0) for label in file.labels)
        made = DatasetFolder(tmp_path / str(number))
        rebuild([replace(file, networks=tuple(wanted), labels=anywhere)], made)
        for record in made.records():
            shipped = file.kernels[record.kernel]
            assert {*record.families} <= {*shipped.families}
            assert record.features == shipped.features
            assert (record.work, record.flops) == (shipped.work, shipped.flops)
            assert record.workspace_bytes == shipped.workspace_bytes
        first_met = [label for label in file.labels if file.networks[label.network] in wanted]
        found = {record.kernel for record in made.records()}
        changed = sum(label.code not in found for label in first_met)
        with capsys.disabled():
            sys.stdout.write(f"\n{file.machine.llvm_cpu}: {changed} of {len(first_met)} changed\n")
        assert not wanted or changed < len(first_met)
