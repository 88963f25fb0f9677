"""``python -m benchmarks.tables``: write docs/results from the recorded rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks import derived, record
from benchmarks.record import Cell, rows_of

_KNOWN = "Not run for this table; `source` says where the figures are from:"
"""Stands above rows without a run."""
_UNKNOWN = "Commit, machine and versions of these rows were not recorded:"
PAGES = Path(__file__).parent.parent / "docs" / "results"

Row = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """One page of results.

    Attributes
    ----------
    text
        At most five sentences: what is compared, how, and what the columns mean.
    command
        Measures the rows.
    key
        Columns that name a row; of rows with equal names the newest is shown.
    shown
        The rows as they stand in the table, of those that are recorded.
    means_by
        A column for each of whose values the means over its rows are shown, and their largest figures.
    recorded
        The rows, of a table that is not recorded by a benchmark.
    """

    name: str
    title: str
    text: str
    command: str
    key: tuple[str, ...]
    shown: Callable[[list[Row]], list[Row]] = list
    means_by: str = ""
    recorded: Callable[[], list[Row]] | None = None


TABLES = (
    Table(
        "solvers",
        "Solvers on graphs of real training steps",
        "Each row is one solve with a time limit on the graph of a training step. `value` and `bound`"
        " are divided by the sum of every op at its fastest device. `gap` is the proven relative"
        " distance to the optimum, within the schedules that `scope` names. A ratio gives each device"
        " its resident state and that share of the rest of what keep-all needs; `minimum` is just"
        " above the working set.",
        "python -m pytest benchmarks/solvers/test_solvers.py -m slow",
        ("network", "platform", "ratio", "solver", "objective"),
    ),
    Table(
        "on_gpu",
        "Training steps on a GPU",
        "Steps of forward, backward and momentum in float32, the same network and batch in PyTorch and here,"
        " in turns on one GPU; `ratio` is the time of a step by PyTorch's. PyTorch's memory is what its"
        " allocator has handed out at most, ours the planned arena, beside which a step allocates nothing"
        " on the GPU. `half` and `a third` have that share of PyTorch's memory and a pool in memory of the"
        " host, for `a third` with the state of the optimizer and the parameters at home there. PyTorch's"
        " convolutions use TF32 by default, with 10 bits of a fraction; ours never do.",
        "python -m benchmarks.training.on_gpu",
        ("network", "gpu", "step"),
    ),
    Table(
        "promised",
        "Times of steps, and of their kernels",
        "Steps that keep every tensor, on one thread and on two, and the sums of their kernels' times as"
        " shares of them: timed with half of the second level of the caches overwritten (`cold`), with three"
        " quarters of the last level overwritten (`memory`), and by the model. `taken` is the state in which"
        " a plan takes measured kernels, and `predicted_by_measured` the plan's own time. `kept_mib` is what"
        " the step holds at once.",
        "python -m benchmarks.training.promised",
        ("network", "batch", "threads"),
    ),
    Table(
        "side_by_side",
        "Two devices side by side",
        "Training steps of the model zoo, without budgets (`ratio` 1) and in a share of what keep-all"
        " needs beside the state on every device: on one core, on two devices that are a core each (planned"
        " for the makespan), and on one device with two threads; medians of steps that take turns. `gain` is"
        " the share of the time on one core that two devices save, measured and as planned;"
        " `predicted_by_measured` is the planned time of a step by the measured one. `slowed` is how much"
        " longer the processor took for a reference workload meanwhile than when kernels were measured,"
        " and `predicted_as_slow` the planned time times that. Columns with"
        " `replanned` are those after the calls of the first steps were timed in place (`--replan`).",
        "python -m benchmarks.training.side_by_side",
        ("network", "ratio"),
    ),
    Table(
        "ranks",
        "Two processes against PyTorch's",
        "Ours with the batch divided (replicas) or with layers on both processes, PyTorch's DDP and its"
        " pipeline (GPipe, four micro-batches), step by step in turns: PyTorch's over gloo, ours through"
        " memory that both processes see. `step_by_ddp` divides the fastest step by DDP's, `busy_by_ddp`"
        " the processor time of the busier process, which waits for the other one for a tenth of a"
        " millisecond before it sleeps. `peak_mib` of PyTorch is what its allocator hands out, ours the"
        " whole arena, within `budgets_mib`: DDP's peaks, twice those for layers, which take the whole"
        " batch, or those of an unequal pair, where one device needs `alone_mib` for the batch in one piece"
        " (where neither can train alone, in slices of it, too); in pairs of unequal speed the second one's"
        " kernels use no AVX. What is predicted begins when the batch is written and ends before the loss is"
        " read: `predicted_by_run` divides it by the time of that, `predicted_by_step` by the time of the"
        " whole call. `loss_difference` is the largest one to PyTorch in one process in five steps,"
        " as a ratio; DDP and the pipeline take batch statistics of their part of the batch only.",
        "python -m benchmarks.cluster.beside_torch",
        ("network", "side"),
    ),
    Table(
        "storage",
        "Half of PyTorch's memory",
        "Training steps in half of the memory that PyTorch's allocator hands out for them (or less), with the"
        " state in a file: parameters and momentum alone take `state_mib`, and without the file a plan is"
        " known from `without_file_mib` on. `resident_mib` is by how much the kernel's count of the"
        " process's memory grew, at most; `torch_resident_mib` is PyTorch's. `first_ms` is a step as planned,"
        " `step_ms` one after `--replan`; `by_torch` divides it by PyTorch's step on the same cores."
        " `copies_hidden` is the share of the time of copies in which kernels ran.",
        "python -m benchmarks.training.storage",
        ("network",),
    ),
    Table(
        "miqp",
        "The quadratic program on the default platform",
        "Training steps of the model zoo on a CPU with and without libraries, with predicted costs and a"
        " limit of 60 s. `value` and `bound` are divided by the sum of every op at its fastest device;"
        " `auto` is the portfolio's value with the same limit. `columns` and `rows` are those of the"
        " whole program in the graph's order, which is solved in windows where it is large. Where the"
        " portfolio proves the optimum for every schedule at first, no program is written.",
        "python -m benchmarks.solvers.miqp",
        ("network", "ratio", "backend"),
    ),
    Table(
        "proofs",
        "How much is proven",
        "Training steps on made-up devices (`benchmarks/solvers/training_graphs.py`) and random layered"
        " graphs, solved by the portfolio for 30 s. `devices`: one; two over PCIe or shared memory; one and"
        " flash. `ratio` is the share of what keep-all needs beside the state. `value` and `bound` are"
        " divided by the sum of every op at its fastest device.",
        "python -m benchmarks.solvers.proofs",
        ("graph", "devices", "ratio", "objective"),
    ),
    Table(
        "astar",
        "What A* proves that the relaxations do not",
        "Problems of up to 24 ops, each solved twice by the portfolio for 20 s: with A*, and with a"
        " relaxation that leaves the order of first runs open in its place. `proven` says whether the"
        " optimum among all schedules is.",
        "python -m pytest benchmarks/solvers/test_astar.py -m slow -s",
        ("instance", "mode"),
    ),
    Table(
        "published",
        "Published programs beside the portfolio",
        "The same problems and the same rules for all, 20 s each. `model` is the optimum of the published"
        " program, or the best known; `value` that of the schedule that can be executed, `bound` what no"
        " schedule of the model is below. All are divided by the sum of every op at its fastest device.",
        "python -m benchmarks.solvers.published",
        ("network", "devices", "ratio", "solver"),
    ),
    Table(
        "time_with_variants",
        "Time of a step with and without variants",
        "Training steps on one device with the budgets that `ratio` of what keep-all needs beside the state"
        " leaves, planned with a work limit of 5 and roofline costs: of the whole batch with the usual"
        " kernels, and as plans are made, with variants and in slices. Times are multiples of keep-all;"
        " without one nothing fits. Rows of 4f1520c1 had a limit of 5 s.",
        "python -m benchmarks.solvers.time_with_variants",
        ("network", "ratio"),
    ),
    Table(
        "sensitivity",
        "Constants of greedy and of the local search",
        "Each constant is moved with the others as they are; its own value stands first. `cost` is the"
        " geometric mean over six training steps (and two seeds of the search) of the schedule's value"
        " divided by the sum of every op at its fastest device. The search is limited to 40,000"
        " evaluations, so the speed of the machine does not matter; a seed may change its figure by 3 %, so"
        " smaller differences say nothing. Graphs and platforms are those of the solvers' table.",
        "python -m benchmarks.solvers.sensitivity",
        ("constant", "value"),
    ),
    Table(
        "regret",
        "Plans on a processor that no label is of",
        "By how many per cent a step takes longer than planned with measured costs, judged by a round of"
        " measurements that no plan has seen; every kind may choose from the schedules of all. The model"
        " knows other processors only (`elsewhere`), and a sweep of three minutes here (`calibrated`)."
        " `active` measures `measured %` of the kernels, `random` as many at random; `again` is a second"
        " round of measurements, and `active alone` knows no other kind's schedules, nor these its own."
        " That `active` keeps half of its measurements for later plans was found on LeNet and DS-CNN here.",
        "python -m benchmarks.costs.unseen_processor",
        ("network", "devices", "ratio"),
        means_by="devices",
    ),
    Table(
        "judgements",
        "Models asked about kernels that they had not seen",
        "Every look at locked families of networks, at a processor before its labels joined, and at networks"
        " that no model had learned from, from the ledger of `costs judge`. `median error` is of"
        " |predicted / measured - 1|, `total` the sum of predictions by that of measurements, `inside`"
        " the share of measurements in intervals that should hold 80 %.",
        "tvm-xengine costs judge --why REASON",
        ("number",),
        shown=derived.judgements,
        recorded=derived.ledger,
    ),
    Table(
        "calibrated",
        "What a calibration of a processor is worth",
        "By the labels that ship: a model of the other processors (`others`) is asked about one of them; with"
        " three numbers fitted to up to 400 of that one's kernels (`numbers`); and with these kernels as"
        " evidence (`evidence`). Those of random networks calibrate where it is asked about networks of the"
        " zoo, and the other way round. Per cent: median error, and measurements inside intervals of 80 %."
        " How much evidence counts was chosen on the same labels, so these figures are optimistic.",
        "python -m benchmarks.costs.calibrated",
        ("processor", "asked about"),
    ),
    Table(
        "smallest_budgets",
        "Smallest budgets",
        "The smallest budget in which a plan is found for a training step on one device (momentum, roofline"
        " costs): of the whole batch with the usual kernels, with variants of them, and in slices of the"
        " batch. Bytes are in MiB, and the state (parameters, optimizer state, batch) is in all. `ratio`"
        " divides the last budget by the first, or by that with variants in rows without one; `beside state`"
        " is the same without the state. `times` are predicted, of a plan of any cost in each budget,"
        " as multiples of keep-all.",
        "python -m benchmarks.solvers.smallest_budgets",
        ("network",),
        shown=derived.smallest_budgets,
    ),
    Table(
        "scaling",
        "From one machine to 64, simulated",
        "Steps of data parallelism on simulated machines of one core (AVX2, generated kernels, roofline"
        " costs), each with the same number of samples. `computes` and `network busy` are how long a machine"
        " and the network are busy in a step, `exposed` is the share of it in which the machine does not"
        " compute, and `efficiency` divides the time of one machine by the step's. The bound behind `gap` is"
        " for schedules in which all machines do the same at the same time; `solve` is its time, within"
        " 6 s. `bucket` was chosen among five sizes.",
        "python -m benchmarks.scaling.simulated",
        ("network", "link", "machines"),
        shown=derived.scaling,
    ),
    Table(
        "kernels",
        "Generated kernels against PyTorch eager",
        "CPU time of the calling thread on one core, both sides in turns in one process. The ratio is"
        " ours to PyTorch's; below 1 is faster than PyTorch.",
        "python -m pytest benchmarks/kernels/test_kernels.py",
        ("kernel",),
    ),
    Table(
        "training_steps",
        "Training steps against PyTorch",
        "Forward, loss, backward and momentum update in float32, fastest of several rounds in turns in"
        " one process. The ratio is to PyTorch eager; below 1 is faster. `peak_mib` of PyTorch is what"
        " its allocator hands out during a step; ours is the whole arena. At half memory the peers are"
        " activation checkpointing and `torch.compile` with a memory budget, tuned to the same bytes."
        " `auto` and `ours` take library kernels where they are faster, `tir` generated ones alone.",
        "python -m pytest benchmarks/training/test_training_step.py -m slow",
        ("network", "memory", "step"),
    ),
    Table(
        "compile_time",
        "Compile time",
        "Wall-clock seconds of each stage, on a step of 1,000 ops and on ResNet-50 for two devices with"
        " an empty and a filled kernel store.",
        "python -m pytest benchmarks/training/test_compile_speed.py -m 'slow or not slow'",
        ("step", "stage"),
    ),
    Table(
        "parity",
        "Exported C beside PyTorch",
        "Small networks, three optimizers, ten steps: the largest relative difference to PyTorch in float64,"
        " of losses and of the state (parameters, running statistics and optimizer state; a tensor relative"
        " to its largest element). `pytorch` is PyTorch's float32; the others are one package of C, compiled"
        " for each target by GCC at -O2 and run here (`host`) or by QEMU. What is near `pytorch` is as exact"
        " as PyTorch. `cortex-m55` has a package of its own, in Helium's vectors.",
        "python -m benchmarks.embedded.parity.compare",
        ("network", "optimizer", "of"),
    ),
    Table(
        "trained_layers",
        "Which layers a memory budget should train",
        "A network of five layers that knows scikit-learn's digits learns 120 of them that look different;"
        " per cent of held-out digits that are right, mean and standard deviation over five seeds. In each"
        " budget (arena of the exported step, batch 4, SGD with momentum) layers are chosen by Fisher scores"
        " of 32 samples (`--train-scores`), from the last one on, or in a random order (three for each seed),"
        " as long as they fit. `layers` says which, and how often where that differs. Training is PyTorch's.",
        "python -m benchmarks.embedded.trained_layers",
        ("digits", "budget_kib", "trained"),
    ),
    Table(
        "peers",
        "Exported C beside other projects",
        "One training step with SGD. Memory with and without inputs and outputs of the step; of ExecuTorch,"
        " whose gradients are outputs, `with_io_bytes` is what its step needs. `instructions` are counted by"
        " QEMU (`-icount`), `energy_uj` follows from them: 11 mW at 64 MHz (POET's Cortex-M4F), one a cycle."
        " TrainDeeploy's figures are published ones, which say nothing of the bytes of a step.",
        "python -m benchmarks.embedded.peers.compare",
        ("network", "project"),
    ),
    Table(
        "kernel_instructions",
        "Generated kernels beside kernels written by hand",
        "Instructions of one call in float32, counted by QEMU (`-icount`), both compiled by GCC at -O2. The"
        " kernels by hand hold four or eight sums in registers and have no conditions in their innermost"
        " loops; the results of both agree to 1e-5 of the largest. CMSIS-DSP has its matrix functions only.",
        "python -m benchmarks.embedded.kernels.compare",
        ("layer", "kernel"),
    ),
    Table(
        "tiles",
        "Operands in slow memory: in tiles or whole",
        "A training step and the evaluation of a perceptron of 64, 128, 96 and 4 features (batch 4, SGD) on a"
        " Cortex-M7 with 1 MiB of PSRAM at 0.08 GB/s, as predicted, and the bytes of SRAM taken. Rows without"
        " figures have no schedule.",
        "python -m pytest benchmarks/embedded/test_tiles.py -m slow",
        ("sram_kib", "operands"),
    ),
    Table(
        "integer_kernels",
        "Int8 convolutions beside CMSIS-NN's",
        "Instructions of one call, counted by QEMU (`-icount`), both compiled by GCC at -O2. Generated"
        " kernels keep the channels before the pixels and scale in float32, CMSIS-NN's (a clone of its"
        " repository) keep them last and scale in fixed point; results agree to 1 of 256.",
        "python -m benchmarks.embedded.kernels.integers CMSIS_NN",
        ("layer",),
    ),
    Table(
        "embedded",
        "Exported C on a Cortex-M7",
        "Bytes and exact instruction counts of one training step under QEMU (`-icount`), SGD, batch 1,"
        " nothing recomputed. `peer_bytes` is what ExecuTorch plans for the same step.",
        "python -m pytest benchmarks/embedded/test_embedded.py -m slow",
        ("network", "optimize", "backend"),
    ),
)


def called(name: str) -> Table:
    """The table of a name."""
    (table,) = [one for one in TABLES if one.name == name]
    return table


def rewrite(name: str, rows: Sequence[Mapping[str, Cell]]) -> None:
    """Record rows in place of all that a table had, and write its page."""
    (record.RESULTS / f"{name}.jsonl").unlink(missing_ok=True)
    for row in rows:
        record.record(name, row)
    write(called(name))


def write(table: Table) -> None:
    """Write the page of a table from its recorded rows, if there are any."""
    recorded = table.recorded() if table.recorded else rows_of(table.name)
    newest = {tuple(row.get(name) for name in table.key): row for row in recorded}
    rows = table.shown(list(newest.values()))
    if not rows:
        return
    commands = ("python -m benchmarks.tables", table.command)
    page = [f"# {table.title}", "", table.text, "", "```text", *commands[::-1], "```"]
    if table.means_by:
        page += ["", f"Means over rows by `{table.means_by}`, and the largest figures:", ""]
        page += _grid(_means(rows, table))
    for run, group in _by_run(rows).items():
        page += ["", "; ".join(part for part in run if part), "", *_grid(group)]
    PAGES.mkdir(parents=True, exist_ok=True)
    (PAGES / f"{table.name}.md").write_text("\n".join(page) + "\n", encoding="utf-8")


def _by_run(rows: Sequence[Row]) -> dict[tuple[str, ...], list[Row]]:
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        run: Mapping[str, str] | None = row.get("_run")
        named: tuple[str, ...] = (_UNKNOWN if run is None else _KNOWN,)
        if run:
            commit = f"commit {run['commit']}" if run["commit"] else "commit not recorded"
            named = (run["date"], commit, run["machine"], run["versions"])
        groups.setdefault(named, []).append(row)
    return groups


def _means(rows: Sequence[Row], table: Table) -> list[Row]:
    """A row for each value of the column, and one for all rows."""
    by = table.means_by
    groups = {
        value: [row for row in rows if row[by] == value] for value in {r[by]: 0 for r in rows}
    }
    return [
        {by: value, "rows": len(group)}
        | {
            name: f"{mean(figures):.2f} ({max(figures):.1f})"
            for name in group[0]
            if name not in (*table.key, "_run")
            for figures in [[float(row[name]) for row in group]]
        }
        for value, group in {**groups, "all": list(rows)}.items()
    ]


def _grid(rows: Sequence[Row]) -> list[str]:
    columns = [name for name in dict.fromkeys(k for row in rows for k in row) if name != "_run"]
    lines = [[_cell(row.get(name)) for name in columns] for row in rows]
    return [_line(cells) for cells in (columns, ["---"] * len(columns), *lines)]


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, int) and abs(value) >= 10_000:
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    for known in TABLES:
        write(known)
