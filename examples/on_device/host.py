"""The computer's side of both applications: network to C, samples to arrays, and runs of the device."""

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import nn

import tvm_xengine as xe
from tvm_xengine.aot.check.emulation import EMULATORS, compile_program, missing_tool
from tvm_xengine.aot.targets import EmbeddedTarget, embedded_target

HERE = Path(__file__).parent
SOURCES = [HERE / name for name in ("main.c", "flash.c", "serial.c")]
SAVES, FAILING_SAVE = 4, 3


@dataclass(frozen=True)
class Samples:
    """Inputs of shape (samples, ...), float32, and class numbers of shape (samples,)."""

    inputs: np.ndarray
    labels: np.ndarray

    def first(self, count: int) -> "Samples":
        """So many of them."""
        return Samples(self.inputs[:count], self.labels[:count])


@dataclass(frozen=True)
class Application:
    """A pretrained network, and what the device does with it.

    `network` is in evaluation mode; its frozen parameters do not require gradients. `learned` holds
    whole batches, which are repeated until `steps` steps are made; `tested` is never trained on.
    `usual` are samples of pretraining; the ranges of their values scale an int8 backbone.
    """

    title: str
    network: nn.Module
    learned: Samples
    tested: Samples
    batch: int
    steps: int
    lr: float
    arena: str
    usual: Samples


@dataclass(frozen=True)
class CodeBytes:
    """What the package takes of flash."""

    code: int
    frozen: int


def check_tools(target: EmbeddedTarget, *programs: str) -> None:
    """End with a sentence that names the Debian packages that are missing."""
    missing = [name for name in programs if shutil.which(name) is None]
    missing += (missing_tool(target) or "").split()
    if missing:
        sys.exit(
            f"not installed: {' '.join(missing)}; on Debian: apt-get install {' '.join(missing)}"
        )


def pretrain(network: nn.Module, samples: Samples, batch: int, epochs: int, lr: float) -> None:
    """Train all of `network` on this computer; it is left in evaluation mode."""
    inputs, labels = torch.tensor(samples.inputs), torch.tensor(samples.labels)
    step = xe.compile(
        network,
        inputs[:batch],
        loss="cross_entropy",
        optimizer=xe.Adam(lr),
        costs="predicted",
        time_limit_s=10,
    )
    rng = np.random.default_rng(0)
    for epoch in range(epochs):
        order = rng.permutation(len(inputs) // batch * batch).reshape(-1, batch)
        losses = [float(step(inputs[rows], labels[rows])) for rows in order]
        print(f"pretraining: epoch {epoch + 1} of {epochs}, loss {np.mean(losses):.4f}", flush=True)
    step.load_into(network)
    network.eval()


def accuracy(network: nn.Module, samples: Samples) -> float:
    """Share of the samples that PyTorch recognises."""
    with torch.no_grad():
        found = network(torch.tensor(samples.inputs)).argmax(1).numpy()
    return float(np.mean(found == samples.labels))


def export(app: Application, target: str, frozen: str, folder: Path) -> CodeBytes:
    """Write the package `model`, its frozen layers float32 or int8, into `folder`."""
    example = torch.tensor(app.learned.inputs[: app.batch])
    torch.export.save(torch.export.export(app.network, (example,)), folder / "model.pt2")
    command = [sys.executable, "-m", "tvm_xengine", "export", "model.pt2", "--target", target]
    command += ["--loss", "cross_entropy", "--optimizer", "sgd", "--lr", str(app.lr), "--eval-mode"]
    command += ["--entry", "train_step", "infer", "--label-type", "uint8"]
    command += ["--arena-bytes", app.arena, "-o", "model", "--quiet", "--frozen", frozen]
    if frozen == "int8":
        np.savez(folder / "usual.npz", x=app.usual.inputs, y=app.usual.labels.astype(np.uint8))
        command += ["--calibration", "usual.npz"]
    if code := subprocess.run(command, cwd=folder, check=False).returncode:
        sys.exit(code)  # the command has said why
    plan = json.loads((folder / "model" / "model_plan.json").read_text(encoding="utf-8"))
    return CodeBytes(plan["code"]["text_bytes"], plan["flash_bytes"])


def c_array(name: str, values: np.ndarray, type_name: str) -> str:
    """A constant array of C with its first dimension first, and one for the rest of a sample."""
    rows = values.reshape(len(values), -1)
    literal = (lambda v: f"{v!r}f") if type_name == "float" else str
    lines = ",\n".join("{" + ",".join(literal(v) for v in row.tolist()) + "}" for row in rows)
    return f"static const {type_name} {name}[{len(rows)}][{rows.shape[1]}] = {{\n{lines}}};\n"


def write_samples(app: Application, sizes: CodeBytes, folder: Path) -> None:
    """Write `samples.h`."""
    batches = len(app.learned.labels) // app.batch
    used = batches * app.batch
    counts = {"NUM_BATCHES": batches, "NUM_TESTS": len(app.tested.labels), "NUM_STEPS": app.steps}
    counts |= {"STEPS_PER_SAVE": app.steps // SAVES}
    counts |= {"MODEL_CODE_BYTES": sizes.code, "MODEL_FROZEN_BYTES": sizes.frozen}
    text = f'#define TITLE "{app.title}"\n'
    text += "".join(f"#define {name} {value}\n" for name, value in counts.items())
    inputs, labels = app.learned.inputs[:used], app.learned.labels[:used]
    text += c_array("train_inputs", inputs.reshape(batches, -1), "float")
    text += c_array("train_labels", labels.reshape(batches, -1), "uint8_t")
    text += c_array("test_inputs", app.tested.inputs, "float")
    text += f"static const uint8_t test_labels[] = {{{','.join(map(str, app.tested.labels))}}};\n"
    (folder / "samples.h").write_text(text, encoding="ascii")


def build(target: EmbeddedTarget, folder: Path) -> Path:
    """The program of the device."""
    package = [folder / "model" / f"model{part}.c" for part in ("", "_kernels", "_data")]
    flags = ["-std=c11", "-O2", "-fno-strict-aliasing", "-Wall", "-Wextra", "-Werror"]
    flags += ["-DXE_SEMIHOSTING_FILES", f"-I{folder}", f"-I{folder / 'model'}", f"-I{HERE}"]
    program = folder / "firmware"
    compile_program(target, [*SOURCES, *package], [*target.flags, *flags], program)
    return program


def run(program: Path, target: EmbeddedTarget, device: Path) -> list[str]:
    """Switch the device on; its memory is in the folder `device`. When its power fails it is killed."""
    device.mkdir(exist_ok=True)
    command = [*EMULATORS[target.name].command, str(program.resolve())]
    lines = []
    with subprocess.Popen(command, cwd=device, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(f"    {line.rstrip()}", flush=True)
            lines.append(line.strip())
            if line.startswith("Power fails"):
                process.kill()
    if process.returncode and not (lines and lines[-1].startswith("Power fails")):
        sys.exit(f"the device stopped with code {process.returncode}")
    return lines


def losses_of(lines: Sequence[str]) -> dict[int, str]:
    """The printed loss of every step."""
    found = (re.fullmatch(r"Step (\d+): loss (.*)\.", line) for line in lines)
    return {int(match[1]): match[2] for match in found if match}


def losses_of_pytorch(app: Application) -> list[float]:
    """The losses of the same steps in PyTorch; `app.network` is trained."""
    trained = [p for p in app.network.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=app.lr)
    inputs, labels = torch.tensor(app.learned.inputs), torch.tensor(app.learned.labels)
    losses = []
    for step in range(app.steps):
        first = step % (len(labels) // app.batch) * app.batch
        rows = slice(first, first + app.batch)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(app.network(inputs[rows]), labels[rows])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def fail_and_recover(program: Path, target: EmbeddedTarget, whole: Path, other: Path) -> list[str]:
    """Cut the power of a second device in the middle of a save, switch it on again, and compare.

    `whole` is the memory of a device that ran to its end; the second one's, `other`, must be equal
    to it byte for byte. Returns what the second device prints after the failure.
    """
    other.mkdir()
    used = len((whole / "slot_a.bin").read_bytes().rstrip(b"\xff"))
    (other / "power.txt").write_text(f"{FAILING_SAVE} {used // 2}\n", encoding="ascii")
    if not run(program, target, other)[-1].startswith("Power fails"):
        sys.exit("power did not fail")
    (other / "power.txt").unlink()
    print("\nThe device is switched on again:")
    lines = run(program, target, other)
    for slot in ("slot_a.bin", "slot_b.bin"):
        if (whole / slot).read_bytes() != (other / slot).read_bytes():
            sys.exit(f"{slot} differs from that of the device whose power did not fail")
    return lines


def demonstrate(app: Application, target: EmbeddedTarget, frozen: str, folder: Path) -> None:
    """Run the application to its end, then with a power failure, and compare both with PyTorch."""
    write_samples(app, export(app, target.name, frozen, folder), folder)
    program = build(target, folder)
    print("\nThe device is switched on:", flush=True)
    losses = losses_of(run(program, target, folder / "first"))
    print("\nA second device, whose power fails:", flush=True)
    again = losses_of(fail_and_recover(program, target, folder / "first", folder / "second"))
    if not again or again != {step: losses[step] for step in again}:
        sys.exit("after the failure the losses are others")
    print(
        f"\nafter the failure: steps {min(again)} to {max(again)} have the same losses, and both slots"
    )
    print("the same bytes, as without it")
    theirs = losses_of_pytorch(app)
    worst = max(abs(float(losses[k + 1]) - value) for k, value in enumerate(theirs))
    print(f"PyTorch recognises {accuracy(app.network, app.tested):.0%} after the same steps")
    if frozen == "int8":
        print(f"an int8 backbone is not PyTorch's in float32: losses differ by at most {worst:.1e}")
    elif worst > 1e-4:
        sys.exit(f"losses differ from PyTorch's by {worst}")
    else:
        print(f"parity with PyTorch: losses differ by at most {worst:.1e}")


def main(make: Callable[[], Application], *programs: str) -> None:
    """The command line of both applications; `programs` must be installed beside the target's."""
    parser = argparse.ArgumentParser(description="Runs the application, then with a power failure.")
    parser.add_argument("--target", default="cortex-m4", choices=["cortex-m4", "cortex-m7", "host"])
    parser.add_argument("--frozen", default="float32", choices=["float32", "int8"])
    parser.add_argument("--folder", type=Path, help="new folder for package, samples and program")
    chosen = parser.parse_args()
    target = embedded_target(chosen.target)
    check_tools(target, *programs)
    if chosen.folder:
        if chosen.folder.exists():
            sys.exit(f"{chosen.folder} exists; name a new folder")
        chosen.folder.mkdir(parents=True)
        demonstrate(make(), target, chosen.frozen, chosen.folder.resolve())
        return
    with TemporaryDirectory() as name:
        demonstrate(make(), target, chosen.frozen, Path(name))
