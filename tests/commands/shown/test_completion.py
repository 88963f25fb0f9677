"""Completion in real shells: installed in a fresh home, and asked by the tabulator key."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.commands.in_process import run_command
from tvm_xengine.commands.arguments.names import NETWORK_NAMES
from tvm_xengine.frontends.zoo import NETWORKS

ROOT = Path(__file__).parents[3]
LONGEST_S = 60.0
"""A sign that has not come by then will not: completion answers within a second on an idle machine."""


def needs(shell: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed")


SHELLS = ["bash", pytest.param("zsh", marks=needs("zsh"))]


class Session:
    """A shell in a terminal of its own."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal

    def type(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def wait_for(self, sign: str) -> None:
        """Read until the shell has shown `sign`."""
        shown, end_s = "", time.monotonic() + LONGEST_S
        while sign not in shown:
            ready, _, _ = select.select([self._terminal], [], [], end_s - time.monotonic())
            assert ready, f"{sign!r} is not shown, but {shown!r}"
            shown += os.read(self._terminal, 65536).decode(errors="replace")


def program(home: Path) -> None:
    """The command, in the folder ``bin`` of a home."""
    command = home / "bin" / "tvm-xengine"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tvm_xengine "$@"\n')
    command.chmod(0o755)


def environment(home: Path) -> dict[str, str]:
    path = f"{home / 'bin'}:{os.environ['PATH']}"
    return {"HOME": str(home), "PATH": path, "PYTHONPATH": str(ROOT), "TERM": "dumb"}


@contextmanager
def session(shell: str, home: Path, folder: Path) -> Iterator[Session]:
    program(home)
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.execvpe(shell, [shell, "-i"], environment(home))
    try:
        yield Session(terminal)
    finally:
        os.close(terminal)
        os.waitpid(process, 0)


def installed(shell: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that the shell reads when it starts, once completion is installed."""
    monkeypatch.setenv("HOME", str(home))
    start = home / f".{shell}rc"
    start.write_text("PS1='ready> '")
    assert run_command("completion", shell, "--install").returncode == 0
    return start


@pytest.mark.parametrize("shell", SHELLS)
def test_an_installed_completion_works_in_a_new_shell(
    shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, folder = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    folder.mkdir()
    (folder / "my model.onnx").touch()
    (folder / "board.toml").touch()
    installed(shell, home, monkeypatch)
    with session(shell, home, folder) as opened:
        opened.wait_for("ready> ")
        for keys, rest in (
            ("estim", "ate "),
            ("costs ins", "pect "),
            ("train --budget-r", "atio "),
            ("plan lenet --solver recompu", "te-all "),
            ("plan lenet --solver=retent", "ion "),
            ("train mobi", "lenetv2 "),
            ("train my", "\\ model.onnx "),
            ("train lenet --data my", "\\ model.onnx "),
            ("plan lenet --platform bo", "ard.toml "),
            ("costs predict gpt", "_nano "),
        ):
            opened.type(f"tvm-xengine {keys}\t")
            opened.wait_for(rest)
            opened.type("\x15\r")  # Ctrl-U and Enter: an empty line
            opened.wait_for("ready> ")


@needs("fish")
def test_files_complete_in_fish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    program(tmp_path)
    assert run_command("completion", "fish", "--install").returncode == 0
    (tmp_path / "my model.onnx").touch()
    for line in ("train my", "train lenet --data my", "eval my"):
        found = subprocess.run(
            ["fish", "-c", f"complete -C 'tvm-xengine {line}'"],
            cwd=tmp_path,
            env=environment(tmp_path),
            capture_output=True,
            text=True,
            check=True,
        )
        assert "my model.onnx" in found.stdout, line


@pytest.mark.slow
def test_installing_twice_adds_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = installed("bash", tmp_path, monkeypatch)
    latin = b"# caf\xe9\n" + start.read_bytes()
    start.write_bytes(latin)
    run_command("completion", "bash", "--install")
    assert start.read_bytes() == latin
    assert latin.startswith(b"# caf\xe9\nPS1='ready> '\n")


def test_names_of_networks_complete_a_model() -> None:
    assert tuple(NETWORKS) == NETWORK_NAMES
    done = run_command("__complete", "train", "l")
    assert set(NETWORK_NAMES) <= set(done.stdout.split())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_know_the_commands(shell: str) -> None:
    script = run_command("completion", shell).stdout
    assert "export-state" in script
    assert "budget-ratio" in script


def test_an_unknown_shell_is_refused() -> None:
    assert "for SHELL" in run_command("completion", "tcsh").refusal()


def test_a_home_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").touch()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert str(tmp_path / "home") in run_command("completion", "bash", "--install").refusal()
