"""Builds the wheel and the sdist, and tries both in fresh environments: ``make check-wheel``.

Each Python from 3.10 to 3.13 that is on the path gets an environment with the wheel; the one that
runs this program gets one with the sdist, too. What is tried runs outside of the checkout.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.10", "3.11", "3.12", "3.13")
TRIED = (
    ("--version",),
    ("doctor", "--json", "doctor.json"),
    ("plan", "mlp", "--costs", "predicted", "--budget-ratio", "0.7", "--time-limit", "10"),
    ("export", "mlp", "--target", "host", "--arena-bytes", "1MiB", "-o", "package"),
)
"""Commands that use the sources, the shipped cost model, the boards and the C templates."""


def main() -> int:
    """Build, install, try; the number of environments in which something failed."""
    with tempfile.TemporaryDirectory(prefix="check-wheel-") as name:
        folder = Path(name)
        wheel, sdist = built(folder)
        found = interpreters()
        asked = [*((python, wheel) for python in found.values()), (sys.executable, sdist)]
        failed = 0
        for number, (python, package) in enumerate(asked):
            failed += not works(python, package, folder / f"env{number}")
    missing = [one for one in VERSIONS if one not in found]
    if missing:
        say(f"not tried, because there is no such interpreter here: Python {', '.join(missing)}")
    return failed


def built(folder: Path) -> tuple[Path, Path]:
    """The wheel, which is made from the sdist, and the sdist."""
    tools = folder / "tools"
    pip = environment(sys.executable, tools)
    run([*pip, "install", "--quiet", "build"], ROOT)
    python = tools / "bin" / "python"
    run([str(python), "-m", "build", "--outdir", str(folder / "dist"), str(ROOT)], folder)
    (wheel,) = (folder / "dist").glob("*.whl")
    (sdist,) = (folder / "dist").glob("*.tar.gz")
    return wheel, sdist


def interpreters() -> dict[str, str]:
    """Those of `VERSIONS` that are on the path and start."""
    there = {one: path for one in VERSIONS if (path := shutil.which(f"python{one}"))}
    return {
        one: path for one, path in there.items() if not call([path, "-c", "import venv"], ROOT)[0]
    }


def works(python: str, package: Path, folder: Path) -> bool:
    """Whether a package can be installed in a new environment, and all of `TRIED` succeeds."""
    _, version = call([python, "-c", "import sys; print(sys.version.split()[0])"], ROOT)
    name = f"{package.name} on Python {version.strip()}"
    pip = environment(python, folder)
    code, said = call([*pip, "install", "--quiet", str(package)], folder)
    if code:
        say(f"FAILED: {name} cannot be installed\n{said}")
        return False
    command = folder / "bin" / "tvm-xengine"
    for arguments in TRIED:
        code, said = call([str(command), *arguments], folder)
        if code:
            say(f"FAILED: {name}: tvm-xengine {' '.join(arguments)} ended with {code}\n{said}")
            return False
    say(f"works: {name}")
    shutil.rmtree(folder)
    return True


def environment(python: str, folder: Path) -> Sequence[str]:
    """A new environment; its pip as the start of a command."""
    run([python, "-m", "venv", str(folder)], ROOT)
    return [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]


def run(command: Sequence[str], folder: Path) -> None:
    """Run a command that must succeed."""
    code, said = call(command, folder)
    if code:
        raise SystemExit(f"{' '.join(command)} ended with {code}:\n{said}")


def call(command: Sequence[str], folder: Path) -> tuple[int, str]:
    """The exit code of a command, and all that it wrote; it finds no package of the checkout."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=without_checkout(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def without_checkout() -> dict[str, str]:
    """The environment variables but those that lead Python elsewhere."""
    return {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}


def say(text: str) -> None:
    """Report progress."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
