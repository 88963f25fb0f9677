"""``tvm-xengine costs``: collect measurements; train and evaluate cost models."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from tvm_xengine.commands.arguments.cost_options import (
    DEFAULT_TARGETS,
    Boards,
    Collection,
    Rounds,
    Targets,
)
from tvm_xengine.commands.arguments.names import QUANTITY_NAMES, SPLIT_NAMES, UNSEEN_NAMES
from tvm_xengine.commands.arguments.options import OUTPUT, Model, OutputOptions
from tvm_xengine.commands.arguments.step_options import StepOptions
from tvm_xengine.commands.arguments.values import (
    AtLeastTwo,
    Count,
    Counts,
    File,
    Flag,
    Folder,
    Natural,
    Texts,
    choice,
    choices,
)
from tvm_xengine.commands.terminal import Terminal
from tvm_xengine.commands.version import version_text

costs = App(
    name="costs", help="Collect measurements; train and evaluate cost models.", version=version_text
)

Dataset = Annotated[Folder, Parameter(help="Dataset folder.")]
AnyDataset = Annotated[
    Folder | None, Parameter(help="Dataset folder; by default that of the shipped labels.")
]
Written = Annotated[File, Parameter(name=("--output", "-o"), help="File to write.", group=OUTPUT)]
PlatformFile = Annotated[File | None, Parameter(help="Platform file (TOML).")]
_COLLECTION = Collection()
_OUT = OutputOptions()
_STEP = StepOptions()


@costs.command
def noise(
    model: Model = "lenet",
    /,
    *,
    targets: Targets = DEFAULT_TARGETS[:1],
    rounds: Annotated[AtLeastTwo, Parameter(help="Measurement rounds.")] = 3,
    out: OutputOptions = _OUT,
) -> None:
    """Show by how much repeated measurements of a kernel differ on this machine."""
    from tvm_xengine.commands.costs.measuring import compare_rounds

    terminal = Terminal(out)
    terminal.write(compare_rounds(model, targets, rounds, terminal))


@costs.command
def collect(
    *,
    dataset: Dataset,
    collection: Collection = _COLLECTION,
    out: OutputOptions = _OUT,
) -> None:
    """Measure the kernels of networks in many sizes into a dataset, here or on boards behind RPC; resumable.

    Boards take the target at the same position of --targets, or the only one.
    """
    from tvm_xengine.commands.costs.datasets import collect_kernels

    terminal = Terminal(out)
    terminal.write(collect_kernels(dataset, collection, terminal))


@costs.command
def refresh(
    *,
    dataset: Annotated[Folder | None, Parameter(help="Dataset folder.")] = None,
    labels: Annotated[
        Folder | None, Parameter(help="Folder of files of labels, whose kernels are made anew.")
    ] = None,
    out: OutputOptions = _OUT,
) -> None:
    """Recompute the features of the kernels of a dataset, or of labels, without measuring again."""
    from tvm_xengine.commands.costs import refreshing

    terminal = Terminal(out)
    terminal.write(refreshing.refresh(dataset, labels, terminal))


@costs.command
def export(*, dataset: Dataset, output: Written, out: OutputOptions = _OUT) -> None:
    """Write a dataset as one Parquet file."""
    from tvm_xengine.commands.costs.datasets import export_dataset

    terminal = Terminal(out, (output,))
    terminal.write(export_dataset(dataset, output, terminal))


@costs.command(name="import")
def import_(
    file: Annotated[File, Parameter(help="Parquet file that `costs export` wrote.")],
    /,
    *,
    dataset: Dataset,
    out: OutputOptions = _OUT,
) -> None:
    """Add the kernels of a Parquet file to a dataset."""
    from tvm_xengine.commands.costs.datasets import import_dataset

    terminal = Terminal(out)
    terminal.write(import_dataset(file, dataset, terminal))


@costs.command
def pack(
    *,
    dataset: Dataset,
    labels: Annotated[Folder, Parameter(help="Folder of the files of labels.")],
    out: OutputOptions = _OUT,
) -> None:
    """Write the times and features of a dataset as files of labels, for each machine.

    The files say how to make the kernels anew, and do not hold them. Kernels join those that the
    machine's files have; times of a kernel that was measured again replace the old ones.
    """
    from tvm_xengine.commands.costs.labels import pack_labels

    terminal = Terminal(out)
    terminal.write(pack_labels(dataset, labels, terminal))


@costs.command
def unpack(
    *,
    dataset: Dataset,
    labels: Annotated[
        Folder | None, Parameter(help="Folder of the files of labels; by default the shipped.")
    ] = None,
    out: OutputOptions = _OUT,
) -> None:
    """Make a dataset of labels and their features; nothing is measured."""
    from tvm_xengine.commands.costs.labels import unpack_labels

    terminal = Terminal(out)
    terminal.write(unpack_labels(labels, dataset, terminal))


@costs.command
def leaderboard(
    *,
    output: Written,
    dataset: AnyDataset = None,
    models: Annotated[Texts, Parameter(help="Models; by default all.")] = (),
    sketch: Annotated[
        Flag, Parameter(help="Train half the trees, in a quarter of the time.")
    ] = False,
    out: OutputOptions = _OUT,
) -> None:
    """Compare all cost models on all splits, and write the page (Markdown)."""
    from tvm_xengine.commands.costs.labels import write_leaderboard

    terminal = Terminal(out, (output,))
    terminal.write(write_leaderboard(dataset, output, models, terminal, is_sketch=sketch))


@costs.command
def judge(
    *,
    why: Annotated[str, Parameter(help="What is to be shown or decided; goes into the ledger.")],
    dataset: AnyDataset = None,
    cost_model: Annotated[
        File | None, Parameter(help="Cost model to judge instead of the shipped one.")
    ] = None,
    on: Annotated[
        str,
        choice(UNSEEN_NAMES),
        Parameter(
            help="Locked families of networks, processors without labels in the model, or networks of a"
            " dataset that the model has not learned from."
        ),
    ] = "families",
    calibration: Annotated[
        File | None,
        Parameter(help="File of costs calibrate; by default this machine's."),
    ] = None,
    ledger: Annotated[
        File | None, Parameter(help="Ledger to write to; by default that of the shipped labels.")
    ] = None,
    out: OutputOptions = _OUT,
) -> None:
    """Judge a cost model on kernels that it has not seen, and note that in the ledger."""
    from tvm_xengine.commands.costs import judging

    terminal = Terminal(out)
    wanted = judging.Judging(on, why, cost_model, ledger, calibration)
    terminal.write(judging.judge(dataset, wanted, terminal))


@costs.command
def measure(
    model: Model,
    /,
    *,
    step: StepOptions = _STEP,
    platform: PlatformFile = None,
    rpc: Boards = (),
    rounds: Rounds = 3,
    cache: Annotated[File | None, Parameter(help="File of measurements.")] = None,
    out: OutputOptions = _OUT,
) -> None:
    """Measure the kernels of a model's training step, here or on boards behind RPC."""
    from tvm_xengine.commands.costs.measuring import Measuring, measure_model

    terminal = Terminal(out)
    measuring = Measuring(platform, rpc, rounds, cache)
    terminal.write(measure_model(model, step, measuring, terminal))


@costs.command
def train(
    *,
    dataset: AnyDataset = None,
    output: Written,
    seed: Annotated[Natural, Parameter(help="Seed of the model.")] = 0,
    from_scratch: Annotated[
        Flag, Parameter(help="Learn from the dataset alone, without the prior that ships.")
    ] = False,
    out: OutputOptions = _OUT,
) -> None:
    """Train a cost model on a dataset; without one this makes the shipped model."""
    from tvm_xengine.commands.costs.models import train_model

    terminal = Terminal(out, (output,))
    terminal.write(train_model(dataset, output, seed, terminal, from_scratch=from_scratch))


@costs.command(name="eval")
def evaluate(
    *,
    dataset: AnyDataset = None,
    split: Annotated[tuple[str, ...], choices(SPLIT_NAMES), Parameter(help="What is held out.")] = (
        "family",
    ),
    quantity: Annotated[
        str,
        choice(QUANTITY_NAMES),
        Parameter(help="Time, measured energy, or the memory of library calls."),
    ] = "time",
    baselines: Annotated[Flag, Parameter(help="Evaluate the baseline models, too.")] = False,
    sketch: Annotated[
        Flag, Parameter(help="Train half the trees, in a quarter of the time.")
    ] = False,
    out: OutputOptions = _OUT,
) -> None:
    """Evaluate cost models on kernels that they have not learned from."""
    from tvm_xengine.commands.costs.models import Evaluation, evaluate_models

    terminal = Terminal(out)
    wanted = Evaluation(split, quantity, with_baselines=baselines, is_sketch=sketch)
    terminal.write(evaluate_models(dataset, wanted, terminal))


@costs.command
def predict(
    model: Model,
    /,
    *,
    step: StepOptions = _STEP,
    platform: PlatformFile = None,
    cost_model: Annotated[
        File | None, Parameter(help="Cost model to use instead of the shipped one.")
    ] = None,
    out: OutputOptions = _OUT,
) -> None:
    """Predict the costs of the kernels of a model's training step; runs nothing."""
    from tvm_xengine.commands.costs.measuring import predict_model

    terminal = Terminal(out)
    terminal.write(predict_model(model, step, platform, cost_model, terminal))


@costs.command
def calibrate(
    *,
    output: Annotated[
        File | None,
        Parameter(
            name=("--output", "-o"),
            help="File of the machine; by default the one that predictions use.",
            group=OUTPUT,
        ),
    ] = None,
    time_limit: Annotated[
        Count,
        Parameter(
            help="Seconds after which no more kernels are begun; some are timed in any case."
        ),
    ] = 150,
    compare: Annotated[
        Flag,
        Parameter(help="Show errors before and after on the shipped labels of this processor."),
    ] = False,
    out: OutputOptions = _OUT,
) -> None:
    """Time a fixed sweep on this machine, which predictions then take into account."""
    from tvm_xengine.commands.costs.calibrating import calibrate_machine

    terminal = Terminal(out)
    terminal.write(calibrate_machine(output, time_limit, terminal, compare=compare))


@costs.command
def transfer(
    *,
    dataset: Dataset,
    measurements: Annotated[Counts, Parameter(help="Numbers of measured kernels.")] = (
        20,
        50,
        100,
        250,
    ),
    cost_model: Annotated[
        File | None,
        Parameter(help='Correct this model (or "shipped") instead of learning from other devices.'),
    ] = None,
    out: OutputOptions = _OUT,
) -> None:
    """Evaluate predictions for a device with few measurements."""
    from tvm_xengine.commands.costs.models import evaluate_transfers

    terminal = Terminal(out)
    terminal.write(evaluate_transfers(dataset, measurements, cost_model, terminal))


@costs.command
def inspect(
    file: Annotated[
        File | None, Parameter(help="Dataset folder or cost model; by default the shipped model.")
    ] = None,
    /,
    *,
    out: OutputOptions = _OUT,
) -> None:
    """Show what a dataset or a cost model holds."""
    from tvm_xengine.commands.costs.models import inspect_file

    terminal = Terminal(out)
    terminal.write(inspect_file(file, terminal))
