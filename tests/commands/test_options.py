"""What every command takes, and how it refuses what cannot be meant."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from cyclopts import App

from tests.commands.in_process import run_command
from tvm_xengine import commands
from tvm_xengine.commands.app import app
from tvm_xengine.commands.arguments import names
from tvm_xengine.commands.arguments.parameter import HAS_COMPLETERS
from tvm_xengine.commands.arguments.training_options import OptimizerOptions
from tvm_xengine.compiler.options import CostChoice
from tvm_xengine.solvers.backends.table import BACKENDS
from tvm_xengine.solvers.result import Objective
from tvm_xengine.solvers.solve import SOLVERS
from tvm_xengine.training.forward.precision import MixedPrecision
from tvm_xengine.training.optimizers import OPTIMIZERS

COSTS = tuple(f"costs {name}" for name in app["costs"] if not name.startswith("-"))
COMMANDS = (*(name for name in app if not name.startswith("-")), *COSTS)

HEAVY = {"tvm", "torch", "numpy", "scipy", "numba", "onnx", "xgboost", "sklearn"}
"""What takes long to import. Rich is not among them: Cyclopts prints help with it."""


def test_the_names_of_options_are_those_of_the_library() -> None:
    assert tuple(SOLVERS) == names.SOLVER_NAMES
    assert tuple(BACKENDS) == names.BACKEND_NAMES
    assert tuple(OPTIMIZERS) == names.OPTIMIZER_NAMES
    assert {one.value for one in Objective} == set(names.OBJECTIVE_NAMES)
    assert {one.value for one in CostChoice} == set(names.COST_NAMES)
    assert [MixedPrecision(name) for name in names.PRECISION_NAMES]


def test_every_option_of_an_optimizer_can_be_given() -> None:
    given = {field.name for field in fields(OptimizerOptions)} - {"optimizer"}
    offered = {field.name for one in OPTIMIZERS.values() for field in fields(one)}  # type: ignore[arg-type]
    assert given <= offered
    assert offered - given <= {"maximize", "decoupled", "initial_accumulator_value"}


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_is_shown_for_every_command(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = run_command(*command.split(), "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"Usage: tvm-xengine {command}".rstrip())
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "--help" in done.stdout or command


def test_help_breaks_no_line_that_has_room() -> None:
    command = [sys.executable, "-m", "tvm_xengine", "plan", "--help"]
    done = subprocess.run(command, env={**os.environ, "COLUMNS": "300"}, capture_output=True)
    assert b"Compiling and measuring kernels do not count." in done.stdout


@pytest.mark.parametrize(
    "arguments", ["--help plan", "plan -h mlp", "plan mlp --budget --help", "plan --unknown -h"]
)
def test_help_may_be_asked_anywhere(arguments: str) -> None:
    assert run_command(*arguments.split()).stdout.startswith("Usage: tvm-xengine plan")


def test_help_of_an_unknown_command_says_what_there_is() -> None:
    done = run_command("trian", "--help")
    assert done.returncode == 2
    assert 'Did you mean "train"?' in done.stderr


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys; from tvm_xengine.commands.entry import main\n"
        f"for command in {('', *COMMANDS)!r}:\n"
        "    main([*command.split(), '--help'])\n"
        "print('LOADED', *{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.rpartition("LOADED")[2].split())
    assert not HEAVY & loaded


# `launch` hands the options of the command behind it on.
@pytest.mark.parametrize(
    "command", [name for name in COMMANDS if name not in ("costs", "completion", "launch")]
)
def test_every_command_writes_json_and_can_be_quiet(command: str) -> None:
    shown = run_command(*command.split(), "--help").stdout
    assert ("--json FILE|-" if HAS_COMPLETERS else "--json") in shown
    assert "--quiet" in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("trian", "mlp"), 'unknown command "trian". Did you mean "train"?'),
        (("plan", "mlp", "--bugdet", "cpu=1MiB"), "--bugdet. Did you mean --budget?"),
        (("plan", "mlp", "--solver", "gredy"), 'Did you mean "greedy"?'),
        (("train", "mlp", "--optimizer", "adamm"), 'Did you mean "adam"?'),
        (("plan", "mlp", "other"), "unexpected argument 'other'"),
        (("plan",), "expected MODEL; see --help"),
        (("pareto", "mlp", "--ratios"), "for --ratios. expected at least one value"),
        (("eval", "mlp"), "expected the option --state with a value"),
        (("export", "mlp", "-o", "x"), "expected the option --target with a value"),
        (("export-state", "x.pt"), "expected the option --output with a value"),
        (("tune", "mlp"), "expected the option --database with a value"),
        (("solve",), "expected PROBLEM; see --help"),
        (("plan", "lenett"), "did you mean lenet?"),
        (("train", "mlp", "resnet9"), "did you mean resnet"),
        (("plan", "weights.npz"), "neither a .onnx nor a .pt2 file"),
        (("plan", "mlp", "--report", "page.pdf"), "expected a file that ends in .html"),
        (("explain", "plan.json", "--report", "page.txt"), "expected a file that ends in .html"),
        (("plan", "--", "mlp", "--costs"), "unexpected argument '--costs': behind --"),
        (("plan", "--", "mlp", "--costs=x"), "unexpected argument '--costs': behind --"),
        (("costs", "collect"), "expected the option --dataset with a value"),
    ],
)
def test_a_slip_is_one_sentence_with_a_suggestion(arguments: tuple[str, ...], said: str) -> None:
    done = run_command(*arguments)
    assert said in done.refusal()
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--steps", "0"), "for --steps: expected a whole number of at least 1"),
        (("--epochs", "-1"), "for --epochs"),
        (("--epochs", "1.5"), "for --epochs"),
        (("--lr", "0"), "for --lr: expected a number above 0"),
        (("--momentum", "1"), "for --momentum: expected a number of at least 0 and below 1"),
        (("--weight-decay", "-1"), "for --weight-decay"),
        (("--betas", "0.9", "1.5"), "for --betas"),
        (("--betas", "0.9"), "--betas"),
        (("--eps", "nan"), "for --eps"),
        (("--clip-norm", "0"), "for --clip-norm"),
        (("--micro-batches", "0"), "for --micro-batches"),
        (("--precision", "int8"), "for --precision"),
        (("--pin", "conv*"), "expected PATTERN=DEVICE"),
        (("--checkpoint-every", "0"), "for --checkpoint-every"),
        (("--checkpoint-every", "5"), "needs a file to write: give --checkpoint FILE"),
        (("--optimizer", "lion", "--momentum", "0.9"), "--momentum is no option of lion"),
        (("--optimizer", "sgd", "--betas", "0.9", "0.9"), "which takes --lr, --momentum"),
        (("--optimizer", "sgd", "--nesterov"), "nesterov needs a momentum"),
        (("--loss", "cross_entropi"), "unknown loss 'cross_entropi'"),
        (("--loss", "crossentropy"), "did you mean cross_entropy?"),
        (("--loss", "cross_entropy(0.1)"), "expected a loss such as"),
        (("--loss", "cross_entropy(smooth=0.1)"), "has no options"),
        (("--loss", "cross_entropy(label_smoothing=open('x'))"), "expected a loss such as"),
        (("--lr-schedule", "cosinus"), "expected a schedule constant[:WARMUP]"),
        (("--lr-schedule", "cosine:0"), "expected a whole number of steps"),
        (("--lr-schedule", "step:10:2"), "expected a factor above 0 and at most 1"),
        (("--lr-schedule", "no_such_module:rate"), "cannot be called"),
        (("--validation", "1.5"), "above 0 and below 1"),
        (("--validation", "absent.npz"), "absent.npz"),
        (("--data", "absent.npz"), "absent.npz"),
        (("--backend", "scip"), "works without a backend"),
        (("--train", "absent*"), "matches no parameter"),
        (("--resume", "absent.safetensors"), "there is no checkpoint"),
        (("--schedule", "absent.json"), "cannot read schedule file"),
        (("--pin", "h*=gpu"), "names no device that computes"),
        (("--keep", "absent*"), "matches no op"),
        (("--recompute", "*update*"), "can be recomputed"),
        (("--save", "state.bin", "--steps", "1"), "ends in .safetensors, .pt, .npz"),
    ],
)
def test_wrong_values_of_train_are_refused(
    arguments: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    """Wherever they are found out: while parsing, or before anything is trained."""
    given = ("--costs", "roofline", "--time-limit", "1", "--solver", "greedy", "--quiet")
    cache = ("--cache", str(tmp_path / "measurements.jsonl"))
    done = run_command("train", "mlp", *given, *cache, *arguments)
    assert said in done.refusal()
    assert done.stderr.count("\n") == 1


def test_a_quiet_command_says_no_warnings(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = tmp_path / "measurements.jsonl"
    cache.write_text("no row\n" * 5)
    command = ("estimate", "mlp", "--cache", str(cache))
    assert run_command(*command, "--quiet").returncode == 0
    assert caplog.records == []
    assert run_command(*command).returncode == 0
    assert "skipped" in caplog.text


def test_tables_fit_80_columns_with_whole_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    quick = ("--costs", "roofline", "--solver", "greedy", "--time-limit", "1")
    done = run_command("plan", "mlp", *quick, "--cache", str(tmp_path / "measurements.jsonl"))
    assert " cpu_generic " in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_json_on_standard_output_stands_alone(tmp_path: Path) -> None:
    done = run_command(
        *("estimate", "mlp", "--json", "-", "--cache", str(tmp_path / "measurements.jsonl"))
    )
    assert done.returncode == 0
    assert json.loads(done.stdout)["keep_all_bytes"] > 0


def test_every_command_has_a_description() -> None:
    assert isinstance(app, App)
    assert all(app[name].help for name in app if not name.startswith("-"))


@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "mlp", "--freeze"),
        ("train", "mlp", "--freeze", "--steps", "3"),
        ("plan", "mlp", "--budget"),
        ("plan", "mlp", "--pin", "--json", "-"),
    ],
)
def test_an_option_for_several_values_needs_one(arguments: tuple[str, ...]) -> None:
    (option,) = {"--freeze", "--budget", "--pin"} & set(arguments)
    assert f"option {option}: expected a value" in run_command(*arguments).refusal()


def test_values_that_begin_with_a_dash_are_values() -> None:
    refusal = run_command("plan", "mlp", "--pin", "-x=cpu", "--solver", "nothing").refusal()
    assert "expected a value" not in refusal


def test_what_only_cyclopts_5_knows_is_left_out_on_python_3_10() -> None:
    folder = Path(commands.__file__).parent
    calls = [
        (path.name, node.lineno)
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") == "Parameter"
        and {"metavar", "completer"} & {keyword.arg for keyword in node.keywords}
    ]
    assert calls == []  # `shown_as` leaves them out there
