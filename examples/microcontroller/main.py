"""A network leaves PyTorch as C that trains in 32 KiB; the C program gives PyTorch's losses."""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

HERE = Path(__file__).parent
EXPORT = ("--loss", "cross_entropy", "--optimizer", "sgd", "--lr", "0.5", "--arena-bytes", "32KiB")
COMPILE = ("gcc", "-std=c11", "-O2", "-fno-strict-aliasing", "-Idigits", str(HERE / "main.c"))

torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images[:16] / 16, dtype=torch.float32)
labels = torch.tensor(digits.target[:16])
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))

with TemporaryDirectory() as name:
    folder = Path(name)
    torch.export.save(torch.export.export(model, (images,)), folder / "digits.pt2")
    images.numpy().tofile(folder / "images.bin")
    labels.numpy().astype(np.int64).tofile(folder / "labels.bin")
    program = (sys.executable, "-m", "tvm_xengine", "export", "digits.pt2", "--target", "host")
    subprocess.run([*program, *EXPORT, "-o", "digits"], cwd=folder, check=True)
    sources = [f"digits/digits{part}.c" for part in ("", "_kernels", "_data")]
    subprocess.run([*COMPILE, *sources, "-lm", "-o", "train"], cwd=folder, check=True)
    done = subprocess.run(["./train"], cwd=folder, check=True, capture_output=True, text=True)
ours = [float(line) for line in done.stdout.split()]

optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
theirs = []
for _ in ours:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    theirs.append(loss.item())
worst = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
print(f"loss {ours[0]:.3f} to {ours[-1]:.3f} in {len(ours)} steps")
assert ours[-1] < 0.5 * ours[0]
assert worst < 1e-4, f"losses differ by {worst}"
print(f"parity with PyTorch: losses differ by at most {worst:.1e}")
