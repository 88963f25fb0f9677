"""Entry points of one package: they share state, and single samples do what a batch does."""

import ctypes
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from tvm import relax

import tvm_xengine as xe
from tests.aot.calls.test_warnings import warnings_of
from tests.aot.examples import MODELS, OPTIMIZERS, export, need_compiler, need_tools, tiny_mlp
from tests.aot.test_package import SANITIZED, STRICT, Session
from tests.vm import computed
from tvm_xengine.aot.check.emulation import Build, build_program, run_program, selftest_build
from tvm_xengine.aot.emit_c.prototypes import arguments
from tvm_xengine.aot.entries import Entry, chosen_entries
from tvm_xengine.aot.export import ExportReport
from tvm_xengine.errors import ExportError, UnsupportedModelError
from tvm_xengine.frontends import zoo
from tvm_xengine.frontends.batch import with_batch_size
from tvm_xengine.frontends.evaluation_mode import in_evaluation_mode
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.frontends.zoo.layers import Layers, build_network
from tvm_xengine.relax_ir.forward_ops import read_forward_ops
from tvm_xengine.relax_ir.types import static_shape
from tvm_xengine.training.forward.evaluation import evaluation_module
from tvm_xengine.training.losses import Dice
from tvm_xengine.training.recipe import Recipe
from tvm_xengine.training.single_samples import build_single_samples

ALL = tuple(entry.value for entry in Entry)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> ExportReport:
    need_tools("host")
    folder = tmp_path_factory.mktemp("entries") / "tiny"
    return export(tiny_mlp(), folder, optimizer="momentum", entries=ALL)


@pytest.fixture
def session(report: ExportReport, tmp_path: Path) -> Session:
    made = Session(report, tmp_path)
    assert made.init() == 0
    assert made.call("state_reset") == 0
    return made


def test_the_program_of_the_readme_calls_everything_once(
    report: ExportReport, tmp_path: Path
) -> None:
    readme = (report.directory / "README.md").read_text()
    (program,) = re.findall(r"```c\n(.*?)```", readme, re.DOTALL)
    assert all(f"{report.package.name}_{entry}(" in program for entry in ALL)
    (tmp_path / "main.c").write_text(program)
    build = Build(tmp_path / "main.c", SANITIZED)
    build_program(report.directory, report.package, build, tmp_path / "program")
    done = run_program(tmp_path / "program", report.package.target)
    assert (done.returncode, done.stdout, done.stderr) == (0, "success\n", "")


def batches(count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(3)
    return [
        (random.normal(size=(2, 16)).astype(np.float32), random.integers(0, 4, 2))
        for _ in range(count)
    ]


def accumulate(session: Session, x: np.ndarray, labels: np.ndarray) -> list[int]:
    """One call for each sample of a batch; the codes."""
    pairs = zip(x, labels, strict=True)
    return [
        session.call("accumulate", one[None].copy(), np.array([label]), None, None)
        for one, label in pairs
    ]


@pytest.mark.parametrize("compiler", ["gcc", pytest.param("clang", marks=pytest.mark.slow)])
def test_the_self_test_of_all_entry_points_passes(
    compiler: str, report: ExportReport, tmp_path: Path
) -> None:
    """It takes every second step over single samples, and compares all with this machine's batches."""
    need_compiler(compiler)
    build = selftest_build(report.directory, report.package, *SANITIZED, compiler=compiler)
    build_program(report.directory, report.package, build, tmp_path / "selftest")
    done = run_program(tmp_path / "selftest", report.package.target)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_compilers_have_nothing_to_say(compiler: str, report: ExportReport) -> None:
    assert warnings_of(report, compiler) == ""


def test_accumulated_samples_train_as_a_batch(
    report: ExportReport, session: Session, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    whole = Session(report, tmp_path / "other")
    whole.init()
    whole.call("state_reset")
    for x, labels in batches(5):
        assert whole.call("train_step", x, labels, None, None) == 0
        assert accumulate(session, x, labels) == [0, 0]
        assert session.call("apply") == 0
        for tensor in report.package.state:
            found, expected = session.state(tensor.name), whole.state(tensor.name)
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


def test_an_ignored_label_is_refused_and_does_not_count(session: Session) -> None:
    ((x, labels),) = batches(1)
    assert accumulate(session, x, np.array([-100, labels[1]])) == [-7, 0]
    assert session.call("apply") == 0
    found = session.state("fc1_weight").copy()
    assert session.call("state_reset") == 0
    assert accumulate(session, x[1:], labels[1:]) == [0]
    assert session.call("apply") == 0
    np.testing.assert_array_equal(session.state("fc1_weight"), found)


def test_inference_between_samples_changes_nothing(session: Session) -> None:
    ((x, labels),) = batches(1)

    def update(*, interrupted: bool) -> np.ndarray:
        session.call("state_reset")
        for one, label in zip(x, labels, strict=True):
            assert session.call("accumulate", one[None].copy(), np.array([label]), None, None) == 0
            if interrupted:
                output = np.zeros(8, np.float32)
                assert session.call("infer", x[:1].copy(), output) == 0
                assert session.call("eval", x, output) == 0
        assert session.call("apply") == 0
        return session.memory[: session.package.kept_bytes["sram"]].copy()

    np.testing.assert_array_equal(update(interrupted=True), update(interrupted=False))


def test_a_sample_is_inferred_as_in_a_batch(session: Session) -> None:
    ((x, _),) = batches(1)
    whole, one = np.zeros((2, 4), np.float32), np.zeros(4, np.float32)
    assert session.call("eval", x, whole) == 0
    for at in range(2):
        assert session.call("infer", x[at : at + 1].copy(), one) == 0
        np.testing.assert_allclose(one, whole[at], rtol=1e-6)


def test_calls_out_of_order_have_their_codes(session: Session) -> None:
    ((x, labels),) = batches(1)
    assert session.call("apply") == -11
    accumulate(session, x, labels)
    before = session.memory.copy()
    assert session.call("train_step", x, labels, None, None) == -10
    np.testing.assert_array_equal(session.memory, before)
    assert session.call("discard") == 0
    assert session.call("apply") == -11
    assert session.call("train_step", x, labels, None, None) == 0


def test_nothing_is_discarded_without_a_state(session: Session) -> None:
    """As no other function of the state works without one."""
    assert session.init() == 0
    assert session.call("discard") == -1


def test_every_code_has_its_sentence(report: ExportReport, session: Session) -> None:
    header = (report.directory / f"{report.package.name}.h").read_text()
    codes = [int(code) for code in re.findall(r"^  TINY_MLP_\w+ = (-?\d+)", header, re.MULTILINE)]
    assert codes == list(range(0, -15, -1))
    say = session.library.tiny_mlp_status_text
    say.restype = ctypes.c_char_p
    texts = [say(code).decode() for code in codes]
    assert len(set(texts)) == len(texts)
    assert say(-99).decode() == "no code of tiny_mlp"


def test_each_entry_point_takes_what_its_macro_says(report: ExportReport) -> None:
    header = (report.directory / "tiny_mlp.h").read_text()
    sizes = {
        entry: int(re.search(rf"TINY_MLP_{entry.name}_SRAM_BYTES (\d+)u", header)[1])  # type: ignore[index]
        for entry in Entry
    }
    for entry, program in report.package.functions.items():
        assert sizes[entry] == program.interface.arena_bytes["sram"]
    assert max(sizes.values()) == report.package.regions["sram"]
    assert sizes[Entry.INFER] < sizes[Entry.EVAL]


def test_contexts_in_several_threads_do_not_meet(report: ExportReport, tmp_path: Path) -> None:
    """ThreadSanitizer watches two threads that train, each with memory of its own."""
    (tmp_path / "main.c").write_text(_THREADS)
    flags = (*STRICT, "-g", "-O1", "-fsanitize=thread", "-pthread")
    build = Build(tmp_path / "main.c", flags)
    build_program(report.directory, report.package, build, tmp_path / "threads")
    done = run_program(tmp_path / "threads", report.package.target)
    assert (done.returncode, done.stderr) == (0, "")


_THREADS = """\
#include <pthread.h>
#include <string.h>
#include "tiny_mlp.h"
static struct { _Alignas(8) uint8_t memory[TINY_MLP_SRAM_BYTES]; float loss; int32_t code; } of[2];
static void *train(void *given) {
  int k = *(const int *)given;
  tiny_mlp_ctx ctx;
  float x[TINY_MLP_TRAIN_STEP_X_COUNT];
  int64_t labels[TINY_MLP_TRAIN_STEP_LABELS_COUNT] = {1, TINY_MLP_TRAIN_STEP_LABELS_MAX};
  for (int i = 0; i < 32; i++) x[i] = (float)i * 0.1f;
  of[k].code = tiny_mlp_init(&ctx, of[k].memory, sizeof of[k].memory, TINY_MLP_PLAN_HASH);
  of[k].code |= tiny_mlp_state_reset(&ctx);
  for (int step = 0; step < 200; step++)
    of[k].code |= tiny_mlp_train_step(&ctx, x, labels, &of[k].loss, NULL);
  return NULL;
}
int main(void) {
  pthread_t threads[2];
  static const int numbers[2] = {0, 1};
  for (int k = 0; k < 2; k++) pthread_create(&threads[k], NULL, train, (void *)(uintptr_t)&numbers[k]);
  for (int k = 0; k < 2; k++) pthread_join(threads[k], NULL);
  return of[0].code || of[1].code || memcmp(&of[0], &of[1], sizeof of[0]);
}
"""


@pytest.mark.slow
def test_inputs_may_have_the_names_of_what_generated_code_uses(tmp_path: Path) -> None:
    """Functions and variables of the driver and of the self-test, and two names that differ in case only."""
    need_tools("host")
    of_selftest = ("mean", "at", "loss", "tolerance", "load", "file", "check", "failed", "differ")
    names = ("x", "X", *of_selftest, "allowed", "check_input", "memcpy", "size_t")

    def body(layers: Layers) -> relax.Expr:
        first, *rest = (layers.input(name, (2, 4)) for name in names)
        for name, other in zip(names, rest, strict=False):
            first = layers.add(f"sum_{name}", first, other)
        return layers.linear("fc", first, 3)

    report = export(build_network("named", 0, body), tmp_path / "out", entries=ALL)
    build = selftest_build(report.directory, report.package, *SANITIZED, "-Wshadow")
    build_program(report.directory, report.package, build, tmp_path / "selftest")
    assert run_program(tmp_path / "selftest", report.package.target).returncode == 0


def test_indices_of_tables_are_checked_in_every_entry_point(tmp_path: Path) -> None:
    need_tools("host")

    def body(layers: Layers) -> relax.Expr:
        tokens = layers.input("tokens", (2, 5), "int64")
        rows = layers.flatten("flatten", layers.embedding("table", tokens, 7, 4))
        return layers.linear("fc", rows, 3)

    model = build_network("indexed", 0, body)
    report = export(model, tmp_path / "out", entries=("train_step", "eval", "infer"))
    session = Session(report, tmp_path)
    assert session.init() == 0
    assert session.call("state_reset") == 0
    tokens, labels, out = np.zeros((2, 5), np.int64), np.zeros(2, np.int64), np.zeros(6, np.float32)
    calls = (
        ("train_step", tokens, labels, None, None),
        ("eval", tokens, out),
        ("infer", tokens, out),
    )
    for call in calls:
        tokens[:] = 6
        assert session.call(*call) == 0
        tokens[0, 4] = 7
        assert session.call(*call) < 0
        tokens[0, 4] = -1
        assert session.call(*call) < 0


@pytest.mark.slow
def test_a_package_may_only_infer(tmp_path: Path) -> None:
    need_tools("host")
    report = export(tiny_mlp(), tmp_path / "infer", entries=("infer",))
    header = (report.directory / "tiny_mlp.h").read_text()
    assert "train_step" not in header
    assert "set_lr" not in header
    assert "EBUSY" not in header
    build = selftest_build(report.directory, report.package, *SANITIZED)
    build_program(report.directory, report.package, build, tmp_path / "selftest")
    assert run_program(tmp_path / "selftest", report.package.target).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", ["lenet", "attention", "frozen_resnet8"])
def test_accumulation_of_other_networks(name: str, optimizer: str, tmp_path: Path) -> None:
    need_tools("host")
    models = {**MODELS, "frozen_resnet8": lambda: frozen_resnet8(2)}
    report = export(models[name](), tmp_path / "out", optimizer=optimizer, entries=ALL)
    build = selftest_build(report.directory, report.package, *SANITIZED)
    build_program(report.directory, report.package, build, tmp_path / "selftest")
    assert run_program(tmp_path / "selftest", report.package.target).returncode == 0


def frozen_resnet8(batch: int) -> ForwardModel:
    return in_evaluation_mode(zoo.build("resnet8", batch_size=batch))


@pytest.mark.slow
def test_statistics_of_frozen_norms_take_no_memory(tmp_path: Path) -> None:
    need_tools("host")
    model = in_evaluation_mode(normed(2))
    report = export(model, tmp_path / "out")
    names = {tensor.name for tensor in report.package.state}
    assert names == set(model.parameters)
    assert {name for name in model.constants if "mean" in name} <= set(report.package.constants)


def normed(batch: int, norm: bool = True) -> ForwardModel:
    """A convolution with a batch norm, or dropout, and a classifier."""

    def body(layers: Layers) -> relax.Expr:
        x = layers.input("x", (batch, 1, 6, 6))
        x = layers.conv("conv", x, 2, 3)
        if norm:
            x = layers.batch_norm("norm", x)
        else:
            x = layers.dropout("drop", x, 0.5)
        return layers.linear("fc", layers.flatten("flat", x), 3)

    return build_network("normed", 0, body)


@pytest.mark.parametrize(
    ("make", "recipe", "reason"),
    [
        (lambda: normed(1), Recipe(), "batch norms in training mode .* --eval-mode"),
        (lambda: normed(1, norm=False), Recipe(), "dropout .* --eval-mode"),
        (lambda: tiny_mlp(1), Recipe(loss=Dice()), "dice loss"),
    ],
)
def test_what_does_not_add_up_is_refused(
    make: Callable[[], ForwardModel], recipe: Recipe, reason: str
) -> None:
    model = make()
    with pytest.raises(UnsupportedModelError, match=reason):
        build_single_samples(model, recipe, list(model.parameters))


def test_samples_that_depend_on_each_other_are_refused(tmp_path: Path) -> None:
    def body(layers: Layers) -> relax.Expr:
        x = layers.input("x", (2, 16))
        mean = layers.emit("mean", relax.op.mean(x, axis=0, keepdims=True))
        return layers.linear("fc", layers.emit("less", relax.op.subtract(x, mean)), 4)

    with pytest.raises(UnsupportedModelError, match="depend on each other"):
        export(build_network("mixed", 0, body), tmp_path / "out", entries=("infer",))


@pytest.mark.parametrize("names", [("accumulate",), ("train_step", "apply"), ("predict",)])
def test_entry_points_that_make_no_package_are_refused(names: Sequence[str]) -> None:
    with pytest.raises(ExportError, match=r"choose both|expected one of"):
        chosen_entries(tuple(names))


_SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("resnet8", "ds_cnn", "unet")]


@pytest.mark.parametrize("name", ["lenet", "gpt_nano", *_SLOW])
def test_a_model_is_written_for_another_batch_as_it_would_be_built(name: str) -> None:
    for old, new in ((2, 1), (4, 3), (1, 2)):
        made = with_batch_size(zoo.build(name, batch_size=old), new)
        built = zoo.build(name, batch_size=new)
        assert results_of(made) == results_of(built)


class LastStep(torch.nn.Module):
    """A recurrent layer, whose first state has a row for each sample, and a line."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = torch.nn.GRU(3, 4, batch_first=True)
        self.line = torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.line(self.recurrent(x)[0][:, -1])


def test_the_first_state_of_a_recurrent_layer_has_a_row_for_each_sample() -> None:
    model = xe.training_step(LastStep(), torch.zeros(4, 1, 3)).source.training
    (first,) = model.constants.values()
    assert first.shape == (4, 4)
    x = np.ones((4, 1, 3), np.float32)
    sample = with_batch_size(model, 1)
    assert sample.constants is model.constants  # those of a package's other functions
    (whole,) = computed(evaluation_module(model), [x, *model.state.values()])
    (one,) = computed(evaluation_module(sample), [x[:1], *model.state.values()])
    assert one.shape == (1, 2)
    np.testing.assert_allclose(one, whole[:1], rtol=1e-5)


def test_an_instance_norm_has_its_weights_once_for_each_sample() -> None:
    def made(batch: int) -> ForwardModel:
        norm = torch.nn.InstanceNorm2d(3, affine=True)
        module = torch.nn.Sequential(norm, torch.nn.Flatten(), torch.nn.Linear(48, 2))
        return xe.training_step(module, torch.zeros(batch, 3, 4, 4)).source.training

    assert results_of(with_batch_size(made(4), 2)) == results_of(made(2))


class Patches(torch.nn.Module):
    """Six tokens, and one in front of them, whose block has the samples of a batch behind the tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Parameter(torch.zeros(1, 1, 4))
        self.block = torch.nn.TransformerEncoderLayer(4, 2, 6, 0.0, batch_first=False)
        self.line = torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1)
        return self.line(self.block(tokens.transpose(0, 1))[0])


@pytest.mark.parametrize("tokens", [5, 7])
def test_a_dimension_that_the_batch_would_divide_is_not_taken_for_it(tokens: int) -> None:
    def made(batch: int) -> ForwardModel:
        return xe.training_step(Patches(), torch.zeros(batch, tokens, 4)).source.training

    assert results_of(with_batch_size(made(4), 2)) == results_of(made(2))


def test_what_cannot_be_written_for_another_batch_is_named() -> None:
    """TVM's inference of types fails behind it."""

    def body(layers: Layers) -> relax.Expr:
        x = layers.input("x", (2, 16))
        fixed = relax.const(np.ones((2, 16), "float32"))
        return layers.linear("fc", layers.emit("times", relax.op.multiply(x, fixed)), 4)

    model = build_network("fixed", 0, body)
    with pytest.raises(
        UnsupportedModelError, match=r"times \(relax.multiply\) is made for batches"
    ):
        with_batch_size(model, 3)


def results_of(model: ForwardModel) -> list[tuple[str, list[tuple[int, ...]]]]:
    """Each op, with the shapes of what it makes."""
    ops = read_forward_ops(model.main).ops
    return [(op.op, [static_shape(result.ty) for result in op.results]) for op in ops]


@pytest.mark.slow
def test_the_same_plan_gives_the_same_bytes(report: ExportReport, tmp_path: Path) -> None:
    again = export(tiny_mlp(), tmp_path / "again", optimizer="momentum", entries=ALL)
    files = sorted(path.name for path in report.directory.iterdir())
    assert files == sorted(path.name for path in again.directory.iterdir())
    for name in files:
        assert (report.directory / name).read_bytes() == (again.directory / name).read_bytes(), name


@pytest.mark.slow
def test_a_bias_without_a_gradient_is_no_reason_to_refuse_single_samples(tmp_path: Path) -> None:
    """Adam makes a whole step of the rounding of a gradient that is 0."""

    def body(layers: Layers) -> relax.Expr:
        x = layers.conv("conv", layers.input("x", (4, 1, 6, 6)), 3, 3)
        mean = layers.emit("mean", relax.op.mean(x, [2, 3], keepdims=True))
        centred = layers.emit("centred", relax.op.subtract(x, mean))
        bent = layers.emit("bent", relax.op.tanh(centred))
        return layers.linear("fc", layers.flatten("flatten", bent), 4)

    model = build_network("centred", 0, body)
    report = export(model, tmp_path / "out", optimizer="adam", entries=("accumulate", "apply"))
    assert report.package.accumulates


class WithLoss(torch.nn.Module):
    """Returns how far a line is from targets."""

    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(6, 2)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.huber_loss(self.line(x), target)


@pytest.mark.slow
@pytest.mark.parametrize("returns_loss", [False, True])
def test_a_loss_in_the_model_is_left_out_of_inference_where_the_model_is_known(
    returns_loss: bool, tmp_path: Path
) -> None:
    """The mean of single samples is that of a batch; the self-test keeps within its arrays, too."""
    x, target = torch.zeros(4, 6), torch.zeros(4, 2)
    training = (
        xe.training_step(WithLoss(), (x, target), optimizer="sgd")
        if returns_loss
        else xe.training_step(torch.nn.Linear(6, 2), x, loss="huber", optimizer="sgd")
    )
    report = xe.export_for_target(
        training,
        tmp_path / "out",
        regions={"sram": "64KiB"},
        entries=("train_step", "eval", "infer"),
        time_limit_s=5.0,
    )
    header = (report.directory / f"{report.package.name}.h").read_text()
    for entry, rows in ((Entry.INFER, 1), (Entry.EVAL, 4)):
        results = report.package.functions[entry].interface.results
        assert results["output"].shape == (() if returns_loss else (rows, 2))
        taken = arguments(report.package, entry)
        assert len([one for one in taken if not one.is_result]) == (2 if returns_loss else 1)
    assert ("The model returns its loss" in header) == returns_loss
    build = selftest_build(report.directory, report.package, *SANITIZED)
    build_program(report.directory, report.package, build, tmp_path / "selftest")
    done = run_program(tmp_path / "selftest", report.package.target)
    assert (done.returncode, done.stderr) == (0, "")


class Heads(torch.nn.Module):
    """Returns scores of kinds, a place, and the kind of the greatest score."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.kind, self.place = (torch.nn.Linear(6, n) for n in (6, 3, 2))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = torch.relu(self.body(x))
        scores = self.kind(hidden)
        return scores, self.place(hidden), scores.argmax(1)


def loss_of_heads(
    outputs: tuple[torch.Tensor, ...], kind: torch.Tensor, place: torch.Tensor
) -> torch.Tensor:
    functional = torch.nn.functional
    return functional.cross_entropy(outputs[0], kind) + functional.mse_loss(outputs[1], place)


def test_a_model_of_several_outputs_infers_them_all_without_targets(tmp_path: Path) -> None:
    need_tools("host")
    torch.manual_seed(0)
    module, x = Heads(), torch.randn(4, 6)
    targets = (torch.tensor([0, 2, 1, 0]), torch.randn(4, 2))
    training = xe.training_step(
        module, x, loss=loss_of_heads, example_targets=targets, optimizer="sgd"
    )
    report = xe.export_for_target(
        training,
        tmp_path / "out",
        regions={"sram": "64KiB"},
        entries=("train_step", "accumulate", "apply", "eval", "infer"),
        time_limit_s=5.0,
    )
    taken = [one.name for one in arguments(report.package, Entry.INFER)]
    assert taken == ["x", "output_0", "output_1", "output_2"]
    session = Session(report, tmp_path)
    assert session.init() == session.call("state_reset") == 0
    scores, place, best = np.zeros(3, "f4"), np.zeros(2, "f4"), np.zeros(1, "i8")
    assert session.call("infer", x[1].numpy(), scores, place, best) == 0
    with torch.no_grad():
        wanted = module(x[1:2])
    np.testing.assert_allclose(scores, wanted[0][0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(place, wanted[1][0], rtol=1e-5, atol=1e-6)
    assert best == wanted[2].numpy()
    build = selftest_build(report.directory, report.package, *SANITIZED)
    build_program(report.directory, report.package, build, tmp_path / "selftest")
    done = run_program(tmp_path / "selftest", report.package.target)
    assert (done.returncode, done.stderr) == (0, "")
