"""Writes docs/command_line.md from the help of the commands.

Run ``python -m tests.commands.command_page`` after a change of options.
"""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import patch

from tests.commands.in_process import run_command
from tvm_xengine.commands.app import app

PAGE = Path(__file__).parent.parent.parent / "docs" / "command_line.md"

HEAD = """\
# The command line

`tvm-xengine COMMAND --help` shows what stands below. This page is written by `python -m tests.commands.command_page`.

## Exit codes

| code | meaning |
|---|---|
| 0 | success |
| 1 | `estimate --fits`: no schedule is known that fits |
| 2 | refused input: one sentence on standard error says what is wrong and what to do |
| 70 | a fault of this program: its traceback is kept in a file that the sentence names; `--debug` shows it |
| 130, 143 | ended by SIGINT (Ctrl-C), by SIGTERM |
| 141 | who read the output has left (`tvm-xengine ... \\| head`) |

Ctrl-C ends every command within three seconds. Measurements are kept, `plan` reports and writes the best plan so far, and `pareto` the
points that are solved. No other file is left behind, and none is half-written.

## JSON reports

`--json FILE` writes the report of a command, `--json -` writes it to standard output and everything else to standard error. Names
carry units (`_us`, `_bytes`, `_ratio`). What is not known is `null`.

| command | keys |
|---|---|
| `plan`, `solve` | `model`, `batch`, `graph_ops`, `objective`, `solver`, `status`, `scope`, `cost_us`, `makespan_us`, `energy_uj`, \
`bound_us`, `gap`, `solve_s`, `message`, `recomputed_ops`, `transfers`, `step_us_predicted`, `step_us_lo`, `step_us_hi`, \
`measured_kernels`, `all_kernels`, `cost_sources`, `keep_all`, `devices` |
| `train` | those of `plan`, and `steps`, `loss_first`, `loss_last`, `losses`, `accuracy`, `validation`, `step_us_measured`, \
`identical_to_keep_all`, `max_rel_diff` |
| `pareto` | `model`, `points`: each with `ratio`, `budgets`, `objective`, `status`, `value`, `bound`, `gap`, `recomputed_ops`, `transfers` |
| `eval` | `model`, `state`, `samples`, and the metrics: `loss`, `accuracy` |
| `estimate` | `model`, `device`, `batch`, `keep_all_bytes`, `smallest_bytes`, `peak_bytes`, `fits`, `largest_batch` |
| `export` | `name`, `target`, `directory`, `regions`, `status`, `gap`, `recomputed_ops`, `transfers`, `keep_all_bytes`, `code_bytes`, \
`stack_bytes`, `self_test_passed`; with `--format tvm`: `name`, `target`, `arena_bytes`, `state_bytes`, `keep_all_bytes`, `directory` |
| `export-state` | `file`, `tensors`, `state_bytes` |
| `tune` | `kernels`: each with `kernel`, `device`, `calls`, `rule_us`, `tuned_us`, `trials`, `origin`, `was_known` |
| `costs predict`, `costs measure` | `kernels`: each with `kernel`, `device`, `computed_by`, `calls`, `compute_us`, `lo_us`, `hi_us`, `source` |
| `costs noise`, `costs eval`, `costs transfer` | figures by table and model |
| `costs collect`, `refresh`, `export`, `import`, `train`, `inspect` | numbers of kernels, and what the dataset or model holds |

## Completion

`tvm-xengine --install-completion` installs completion for the shell of the session; `tvm-xengine completion bash` (or `zsh`, `fish`)
prints the script.

## Examples

Train a network of your own on your own data under a budget, and take the result home:

    tvm-xengine train model.onnx --data data.npz --loss mse --budget cpu=2MiB --epochs 5 --save trained.safetensors
    tvm-xengine eval model.onnx --data data.npz --loss mse --state trained.safetensors
    tvm-xengine export-state trained.safetensors --onnx model.onnx -o trained.onnx

Stop and go on later, for 1,000 steps in all:

    tvm-xengine train lenet --steps 1000 --checkpoint run.safetensors --checkpoint-every 100
    tvm-xengine train lenet --steps 1000 --resume run.safetensors

Edit a schedule by hand and run it; it is refused if it breaks a rule. Steps that free tensors may be left out:

    tvm-xengine plan lenet --budget-ratio 0.7 --save-schedule schedule.json
    tvm-xengine train lenet --budget-ratio 0.7 --schedule schedule.json

Constrain a plan: a layer on one device, another one never recomputed, a third one always:

    tvm-xengine plan lenet --pin 'fc1*=cpu' --keep 'pool*' --recompute 'conv2_*'
"""


def page() -> str:
    """The page as it should be."""
    parts = [HEAD]
    for command in commands():
        with patch.dict(os.environ, COLUMNS="80"):
            shown = run_command(*command.split(), "--help").stdout
        body = shown.partition("\nExit codes:")[0].strip()
        parts.append(f"## {command}\n\n```text\n{body}\n```\n")
    return "\n".join(parts)


def commands() -> list[str]:
    """Every command with its own help, those of ``costs`` below it."""
    own = [name for name in app if not name.startswith("-")]
    costs = [f"costs {name}" for name in app["costs"] if not name.startswith("-")]
    return [*(name for name in own if name != "costs"), *costs]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
