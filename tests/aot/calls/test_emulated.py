"""Packages on emulated processors: losses within 1e-5 of those of the same sources on this machine.

With vectors, and of an object file, within three times what rounding sums in float32 changes: they are
rounded in another order, and training amplifies that.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.aot.examples import MODELS, export, need_tools
from tvm_xengine.aot.check.emulation import (
    build_program,
    printed_losses,
    run_program,
    selftest_build,
)
from tvm_xengine.aot.entries import Entry
from tvm_xengine.aot.export import ExportReport
from tvm_xengine.aot.package.contents import inputs_of
from tvm_xengine.aot.plan.kernels import Backend
from tvm_xengine.aot.targets import embedded_target
from tvm_xengine.compiler.lean.short_storage import ShortStorage

EVERY = tuple(entry.value for entry in Entry)
USER = ("aarch64", "armhf", "riscv64")
BARE_METAL = ("cortex-m4", "cortex-m7", "cortex-m33", "cortex-m55", "rv32imc", "rv32imafc")


def selftest_losses(report: ExportReport, target: str, program: Path, *flags: str) -> list[float]:
    """Of the package built for a target, where its self-test passes."""
    package = replace(report.package, target=embedded_target(target))
    flags = (*flags, "-Wall", "-Wextra", "-Werror", f"-D{package.macro}_SELFTEST_PRINT")
    if target.startswith("cortex"):
        flags = (*flags, "-DXE_SEMIHOSTING_FILES")
    build = selftest_build(report.directory, package, *flags)
    build_program(report.directory, package, build, program)
    done = run_program(program, package.target)
    losses = printed_losses(done)
    assert done.returncode == 0, (done.returncode, losses[-1:], done.stderr)
    assert len(losses) == 20
    return losses


def passes(report: ExportReport, folder: Path, *flags: str) -> None:
    """Build for the target, run, and compare the losses once more, here."""
    target = report.package.target
    losses = selftest_losses(report, target.name, folder / "p", *flags)
    rounding = 3 * report.expected.rounding_error
    assert losses == pytest.approx(report.expected.losses, rel=max(1e-5, rounding), abs=1e-5)
    if report.package.backend is Backend.C and not target.has_helium:
        here = selftest_losses(report, "host", folder / "here", *flags)
        assert losses == pytest.approx(here, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize(
    "target",
    [
        "cortex-m4",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("aarch64", *BARE_METAL[2:])),
    ],
)
def test_tiny_network(target: str, tmp_path: Path) -> None:
    need_tools(target)
    passes(export(MODELS["tiny_mlp"](), tmp_path / "out", target=target), tmp_path)


def test_tiny_network_on_a_cortex_m0_with_16_kib(tmp_path: Path) -> None:
    need_tools("cortex-m0")
    report = export(MODELS["tiny_mlp"](), tmp_path / "out", target="cortex-m0", optimize="size")
    package = report.package
    build = selftest_build(report.directory, package)
    build_program(report.directory, package, build, tmp_path / "p")
    assert run_program(tmp_path / "p", package.target).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["c", "llvm"])
@pytest.mark.parametrize("target", [*USER, *BARE_METAL])
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_attention(optimizer: str, target: str, backend: str, tmp_path: Path) -> None:
    need_tools(target)
    model = MODELS["attention"]()
    passes(
        export(model, tmp_path / "out", target=target, optimizer=optimizer, backend=backend),
        tmp_path,
    )


@pytest.mark.slow
@pytest.mark.parametrize("target", [*USER, *BARE_METAL])
@pytest.mark.parametrize("network", ["lenet", "resnet8", "ds_cnn"])
def test_network(network: str, target: str, tmp_path: Path) -> None:
    need_tools(target)
    report = export(MODELS[network](), tmp_path / "out", target=target, regions="sram=3MiB")
    passes(report, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("regions", ["sram=64KiB", "sram=2KiB,psram=64KiB"])
@pytest.mark.parametrize("target", ["cortex-m55", "rv32imafc"])
@pytest.mark.parametrize(
    ("entries", "optimizer"),
    [(("infer",), "sgd"), (("accumulate", "apply", "infer"), "adam"), (EVERY, "momentum")],
    ids=["infer", "samples", "all"],
)
def test_every_entry_point(
    entries: tuple[str, ...], optimizer: str, target: str, regions: str, tmp_path: Path
) -> None:
    """What is added up sample by sample is a batch's gradient, in one memory and in two."""
    need_tools(target)
    report = export(
        *(MODELS["tiny_mlp"](), tmp_path / "out"),
        target=target,
        regions=regions,
        optimizer=optimizer,
        entries=entries,
        time_limit_s=3.0,
    )
    package = report.package
    build_program(
        report.directory, package, selftest_build(report.directory, package), tmp_path / "p"
    )
    assert run_program(tmp_path / "p", package.target).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("network", ["lenet", "resnet8", "ds_cnn"])
def test_optimizer_with_state(network: str, tmp_path: Path) -> None:
    need_tools("cortex-m7")
    report = export(
        MODELS[network](),
        tmp_path / "out",
        target="cortex-m7",
        regions="sram=3MiB",
        optimizer="adam",
    )
    passes(report, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cortex-m4", "cortex-m7"])
def test_last_stage_of_resnet8_is_tuned_in_256_kib(target: str, tmp_path: Path) -> None:
    """State, arena and the batch together; frozen weights are in flash."""
    need_tools(target)
    model = MODELS["resnet8"]()
    batch_bytes = 4 * 3 * 32 * 32 + 8
    limit = 256 * 1024
    report = export(
        model,
        tmp_path / "out",
        target=target,
        regions=f"sram={limit - batch_bytes}",
        optimize="size",
        trainable=[name for name in model.parameters if name.startswith(("stage3_", "fc_"))],
        storage=ShortStorage(parameters=True),
    )
    package = report.package
    given = inputs_of(package.functions[Entry.TRAIN_STEP])
    assert sum(view.size_bytes for view in given.values()) == batch_bytes
    assert sum(package.regions.values()) + batch_bytes <= limit
    trained = {tensor.name for tensor in package.state}
    assert {"stage3_conv1_weight", "stage3_conv2_weight", "stage3_shortcut_weight"} <= trained
    assert not any(name.startswith(("conv1_", "stage1_conv", "stage2_conv")) for name in trained)
    assert report.expected.storage_error is not None
    assert report.expected.storage_error < 1e-3
    passes(report, tmp_path)
