from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import psutil
import pytest
import tvm
from tvm.support import cc

from tests.kernels.kernels import BASELINE, NATIVE, long_kernel, matmul, momentum, scale_and_shift
from tvm_xengine.errors import CompilationError
from tvm_xengine.kernels.device_kernel import prepare_kernel
from tvm_xengine.kernels.store.compile import compile_kernels
from tvm_xengine.kernels.store.kernel_store import KernelStore, load_kernels
from tvm_xengine.kernels.targets import resolve_target

SHIFTED = np.array([3, 5, 7, 9], "float32")


def shift_kernel(description=NATIVE):
    return prepare_kernel(scale_and_shift(4), resolve_target(description), "shift")


def run_shift(module, kernel):
    y = tvm.runtime.tensor(np.zeros(4, "float32"))
    module[kernel.symbol](tvm.runtime.tensor(np.array([1, 2, 3, 4], "float32")), y)
    return y.numpy()


def workers():
    """The processes that compile for this one."""
    children = [
        int(child)
        for listed in Path("/proc/self/task").glob("*/children")
        for child in listed.read_text().split()
    ]
    return [n for n in children if "tracker" not in Path(f"/proc/{n}/cmdline").read_text()]


def recording():
    seen = []
    return seen, lambda *progress: seen.append(progress)


def test_a_kernel_is_compiled_once_and_loaded_afterwards(tmp_path):
    kernel = shift_kernel()
    first, note_first = recording()
    again, note_again = recording()
    KernelStore(tmp_path).load([kernel, kernel], note_first)
    modules = KernelStore(tmp_path).load([kernel], note_again)
    assert first == [(1, 1, "shift")]
    assert again == []
    np.testing.assert_array_equal(run_shift(modules[kernel.symbol], kernel), SHIFTED)


def test_kernels_are_the_same_code_with_and_without_a_store(tmp_path):
    """In-place kernels, whose tensors may overlap, must not slow down those compiled beside them."""
    funcs = [scale_and_shift(300), matmul(40, 50, 60), *map(overlapping, (8, 400, 500))]
    kernels = [prepare_kernel(func, resolve_target(NATIVE)) for func in funcs]
    assert [kernel.has_tensors_apart for kernel in kernels] == [True] * 2 + [False] * 3
    together = load_kernels(kernels, None)
    for kernel in kernels:
        alone = compile_kernels([kernel], kernel.target)
        assert computing(together[kernel.symbol], kernel) == computing(alone, kernel)


def overlapping(elements):
    return momentum(elements).without_attr("tirx.noalias")


def computing(module, kernel):
    """LLVM's code of a kernel, less what depends on the error messages of those beside it."""
    text = module.inspect_source("ll")
    names = f"(__tvm_ffi_{kernel.symbol}|{kernel.symbol}_compute_)"
    functions = re.findall(rf"^define [^\n]*@{names}\((.*?)^}}", text, re.DOTALL | re.MULTILINE)
    assert functions
    varying = r"![0-9]+|#[0-9]+|@\.str[.0-9]*|call .*@__tvm_set_raised_.*"
    return {name: re.sub(varying, "", code) for name, code in functions}


def test_a_module_takes_no_kernels_of_both_kinds():
    funcs = matmul(4, 4, 4), overlapping(4)
    kernels = [prepare_kernel(func, resolve_target(NATIVE)) for func in funcs]
    with pytest.raises(ValueError, match="module_groups"):
        compile_kernels(kernels, kernels[0].target)


def test_kernels_of_two_targets_lie_side_by_side(tmp_path):
    kernels = [shift_kernel(NATIVE), shift_kernel(BASELINE)]
    modules = KernelStore(tmp_path).load(kernels)
    assert len({kernel.symbol for kernel in kernels}) == len(modules) == 2
    for kernel in kernels:
        np.testing.assert_array_equal(run_shift(modules[kernel.symbol], kernel), SHIFTED)


@pytest.mark.slow
def test_worker_processes_compile_what_this_process_would(tmp_path):
    target = resolve_target(NATIVE)
    funcs = [scale_and_shift(4), momentum(8)] + [matmul(n, n, n) for n in range(4, 16)]
    kernels = [prepare_kernel(func, target) for func in funcs]
    seen, note = recording()
    modules = KernelStore(tmp_path, max_workers=2, here_s=0).load(kernels, note)
    assert [done for done, _, _ in seen] == list(range(1, len(kernels) + 1))
    here = load_kernels(kernels, None)
    x = tvm.runtime.tensor(np.random.default_rng(0).random((9, 9), "float32"))
    square = kernels[2 + 5]
    results = []
    for module in (modules[square.symbol], here[square.symbol]):
        y = tvm.runtime.tensor(np.zeros((9, 9), "float32"))
        workspace = [tvm.runtime.tensor(np.zeros(square.workspace_bytes, "uint8"))]
        module[square.symbol](x, x, y, *(workspace if square.workspace_bytes else []))
        results.append(y.numpy())
    np.testing.assert_array_equal(*results)
    np.testing.assert_allclose(results[0], x.numpy() @ x.numpy(), rtol=1e-5)


def test_a_damaged_library_is_compiled_again(tmp_path):
    other = prepare_kernel(momentum(8), resolve_target(NATIVE))
    KernelStore(tmp_path).load([other])
    kernel = shift_kernel()
    (library,) = tmp_path.rglob("*.so")
    library.with_stem(kernel.symbol).write_bytes(library.read_bytes()[:100])
    seen, note = recording()
    modules = KernelStore(tmp_path).load([kernel], note)
    assert len(seen) == 1
    np.testing.assert_array_equal(run_shift(modules[kernel.symbol], kernel), SHIFTED)


def test_nothing_unfinished_is_left_when_compiling_fails(tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("disk full")

    monkeypatch.setattr(cc, "create_shared", fail)
    monkeypatch.setattr("tvm.runtime.Module.export_library", fail)
    with pytest.raises(RuntimeError, match="disk full"):
        KernelStore(tmp_path).load([shift_kernel()])
    assert not list(tmp_path.rglob("*.so"))


@pytest.mark.slow
def test_a_kernel_that_takes_too_long_is_named_and_the_others_are_kept(tmp_path):
    target = resolve_target(BASELINE)
    short = [prepare_kernel(matmul(n, n, n), target) for n in range(4, 15)]
    store = KernelStore(tmp_path, max_workers=2, here_s=0, limit_s=1.0)
    with pytest.raises(
        CompilationError, match=r"kernel long \(kernel_long\) did not compile within 1 s"
    ):
        store.load([*short, long_kernel()])
    assert len(list(tmp_path.glob("*/*.so"))) >= 1
    assert len(store.load(short)) == len(short)


def test_without_a_linker_kernels_are_compiled_here_and_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(cc, "get_cc", lambda: None)
    kernel = shift_kernel()
    modules = KernelStore(tmp_path).load([kernel])
    assert not list(tmp_path.rglob("*.so"))
    np.testing.assert_array_equal(run_shift(modules[kernel.symbol], kernel), SHIFTED)


def test_where_nothing_can_be_written_kernels_are_compiled_here(tmp_path):
    (tmp_path / "file").write_text("")
    store, kernel = KernelStore(tmp_path / "file" / "kernels"), shift_kernel()
    assert not store.is_kept
    modules = store.load([kernel])
    np.testing.assert_array_equal(run_shift(modules[kernel.symbol], kernel), SHIFTED)


def test_where_no_folder_can_be_made_whatever_modes_say_kernels_are_compiled_here(caplog):
    store, kernel = KernelStore(Path("/proc/none/kernels")), shift_kernel()
    assert not store.is_kept
    modules = store.load([kernel])
    np.testing.assert_array_equal(run_shift(modules[kernel.symbol], kernel), SHIFTED)
    assert "no space" not in caplog.text


def removed(folder: Path) -> None:
    shutil.rmtree(folder)


def made_a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.touch()


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("change", [removed, made_a_file])
def test_a_folder_that_is_lost_while_kernels_compile_stops_nothing(tmp_path, change, workers):
    lost = []

    def lose(*_progress: object) -> None:
        if not lost:
            lost.append(change(tmp_path / "kernels"))

    target = resolve_target(NATIVE)
    kernel, *others = shift_kernel(), *(prepare_kernel(matmul(n, n, n), target) for n in (3, 4, 5))
    store = KernelStore(tmp_path / "kernels", max_workers=workers, here_s=0)
    modules = store.load([kernel, *others], lose)
    assert lost
    assert {each.symbol for each in others} < set(modules)
    np.testing.assert_array_equal(run_shift(modules[kernel.symbol], kernel), SHIFTED)


@pytest.mark.parametrize("workers", [1, 2])
def test_kernels_are_kept_without_a_folder_for_temporary_files(tmp_path, monkeypatch, workers):
    for variable in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.setenv(variable, str(tmp_path / "none"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    kernels = [shift_kernel(), prepare_kernel(matmul(3, 3, 3), resolve_target(NATIVE))]
    KernelStore(tmp_path / "kernels", max_workers=workers, here_s=0).load(kernels)
    assert len(list(tmp_path.rglob("*.so"))) == len(kernels)


def test_folders_of_versions_long_unused_are_deleted(tmp_path):
    KernelStore(tmp_path).load([shift_kernel()])
    old, recent = tmp_path / "old", tmp_path / "recent"
    for folder in (old, recent):
        folder.mkdir()
    os.utime(old, (0, 0))
    KernelStore(tmp_path).load([prepare_kernel(momentum(8), resolve_target(NATIVE))])
    assert not old.exists()
    assert recent.exists()
    assert len(list(tmp_path.rglob("*.so"))) == 2


@pytest.mark.slow
def test_a_dying_worker_is_reported_and_what_was_compiled_is_kept(tmp_path):
    target = resolve_target(NATIVE)
    kernels = {
        kernel.symbol: kernel
        for kernel in (prepare_kernel(matmul(n, n, n), target) for n in range(4, 18))
    }

    def kill_workers(*progress):
        for child in workers():
            os.kill(child, signal.SIGKILL)

    with pytest.raises(CompilationError, match="died"):
        KernelStore(tmp_path, max_workers=2, here_s=0).load(kernels.values(), kill_workers)
    kept = len(list(tmp_path.glob("*/*.so")))
    assert kept >= 1
    compiled, note = recording()
    KernelStore(tmp_path, max_workers=1).load(kernels.values(), note)
    assert len(compiled) == len(kernels) - kept


@pytest.mark.slow
def test_workers_end_with_a_process_that_is_killed() -> None:
    code = (
        "import os, time\n"
        "from tvm_xengine.processes.pools import worker_processes\n"
        "print(worker_processes(2, ends_with_caller=True).submit(os.getpid).result(), flush=True)\n"
        "time.sleep(60)"
    )
    parent = psutil.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert parent.stdout.readline()
    found = parent.children(recursive=True)
    parent.kill()
    parent.wait()
    _, alive = psutil.wait_procs(found, timeout=30)
    assert not alive


@pytest.mark.slow
def test_a_script_without_main_guard_can_compile_in_parallel(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from pathlib import Path\n"
        "from tests.kernels.kernels import NATIVE, matmul\n"
        "from tvm_xengine.kernels.device_kernel import prepare_kernel\n"
        "from tvm_xengine.kernels.store.kernel_store import KernelStore\n"
        "from tvm_xengine.kernels.targets import resolve_target\n"
        "target = resolve_target(NATIVE)\n"
        "kernels = [prepare_kernel(matmul(n, n, n), target) for n in range(4, 18)]\n"
        f"print(len(KernelStore(Path({str(tmp_path)!r}), max_workers=2, here_s=0).load(kernels)))\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert done.stdout.split() == ["14"]
