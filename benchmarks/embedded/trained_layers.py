"""Accuracy of a network whose trained layers were chosen: by Fisher scores, the last ones, at random, all.

    python -m benchmarks.embedded.trained_layers

A network learns scikit-learn's digits in PyTorch, and then a few digits that look different, with only some
layers trained: those that fit a memory budget, as exported C takes it. Rows go to
`benchmarks/results/trained_layers.jsonl`, and the table is written anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tvm_xengine as xe
from benchmarks import record, tables
from tvm_xengine.aot.layers.known import StepLimits
from tvm_xengine.aot.layers.trials import Trials
from tvm_xengine.aot.options import ExportOptions
from tvm_xengine.aot.plan.regions import parse_regions
from tvm_xengine.data.arrays import Data
from tvm_xengine.data.digits import load_digits
from tvm_xengine.frontends.layers import Layer
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.model.layer_scores import scored_layers
from tvm_xengine.model.training import Training
from tvm_xengine.planning.planner import PlanOptions
from tvm_xengine.planning.subsets.choose import Refusal, choose_subset
from tvm_xengine.planning.subsets.relaxation import Subset
from tvm_xengine.session.layers.train_budget import training_only
from tvm_xengine.solvers.result import Limits
from tvm_xengine.training.step import TrainingStep

Row = dict[str, record.Cell]
SEEDS = range(5)
RANDOM_SUBSETS = 3
"""For each seed; their mean counts."""
BUDGETS_KIB = (28, 40, 56)
"""All layers take 87 KiB where nothing is recomputed."""
BATCH, FEW, STEPS, RATE = 4, 120, 240, 0.001
PRETRAINING_BATCH, PRETRAINING_EPOCHS = 32, 15
LAYERS = ("conv1", "conv2", "conv3", "conv4", "fc")


class Network(nn.Module):
    """Four convolutions and a classifier for 8 x 8 images."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 12, 3, padding=1)
        self.conv3 = nn.Conv2d(12, 16, 3, stride=2, padding=1)
        self.conv4 = nn.Conv2d(16, 16, 3, stride=2, padding=1)
        self.fc = nn.Linear(16 * 4, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        return self.fc(F.relu(self.conv4(F.relu(self.conv3(x)))).flatten(1))


SHIFTS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda x: x.transpose(2, 3),
    "mirrored": lambda x: x.flip(3),
    "faint": lambda x: 0.3 * x + 0.5,
}
"""How the digits of the device look."""


@dataclass(frozen=True)
class Digits:
    """Images with their classes."""

    x: Tensor
    y: Tensor

    def shifted(self, shift: str) -> Digits:
        """The same as they look on the device."""
        return Digits(SHIFTS[shift](self.x), self.y)


def digits() -> tuple[Digits, Digits]:
    """For training and for testing."""
    data = load_digits((1, 8, 8))
    train, test = (
        Digits(torch.tensor(np.asarray(part["x"])), torch.tensor(np.asarray(part["y"])))
        for part in (data.train, data.validation)
    )
    return train, test


def train(
    network: nn.Module,
    data: Digits,
    optimizer: torch.optim.Optimizer,
    steps: int,
    batch: int = BATCH,
) -> None:
    """Steps on batches in random order."""
    epochs = 1 + steps * batch // len(data.y)
    order = torch.cat([torch.randperm(len(data.y)) for _ in range(epochs)])
    for rows in order[: steps * batch].reshape(steps, batch):
        optimizer.zero_grad()
        F.cross_entropy(network(data.x[rows]), data.y[rows]).backward()
        optimizer.step()


def accuracy(network: nn.Module, data: Digits) -> float:
    """Share of right answers."""
    with torch.no_grad():
        return float((network(data.x).argmax(1) == data.y).float().mean())


def pretrained(seed: int, data: Digits) -> Network:
    """A network that knows the digits as they are."""
    torch.manual_seed(seed)
    network = Network()
    steps = PRETRAINING_EPOCHS * len(data.y) // PRETRAINING_BATCH
    optimizer = torch.optim.Adam(network.parameters(), 3e-3)
    train(network, data, optimizer, steps, PRETRAINING_BATCH)
    return network


def fine_tuned(network: Network, names: Sequence[str], data: Digits, seed: int) -> Network:
    """The network after some steps in which only the named layers are trained."""
    torch.manual_seed(seed)
    copy = Network()
    copy.load_state_dict(network.state_dict())
    if names:
        parameters = [p for name in names for p in getattr(copy, name).parameters()]
        train(copy, data, torch.optim.SGD(parameters, RATE, momentum=0.9), STEPS)
    return copy


def training_of(network: Network) -> Training:
    """The step that is exported."""
    example = torch.zeros(BATCH, 1, 8, 8)
    optimizer = xe.SGD(RATE, momentum=0.9)
    return xe.training_step(network, example, loss="cross_entropy", optimizer=optimizer)


@dataclass(frozen=True)
class Budget:
    """Which layers fit a memory, by the plans of a package; plans do not depend on weights."""

    trials: Trials

    @classmethod
    def of(cls, training: Training, kib: int) -> Budget:
        """With plans for a Cortex-M4."""

        def only(names: Sequence[str]) -> tuple[ForwardModel, TrainingStep]:
            chosen = training_only(training, names)
            return chosen.source.training, chosen.step

        layers = scored_layers(training.roles, dict.fromkeys(LAYERS, 1.0))
        regions = parse_regions(f"sram={kib}KiB")
        options = ExportOptions("cortex-m4", regions, plan=PlanOptions(limits=Limits(10.0)))
        return cls(Trials(tuple(layers), only, options, StepLimits(), lambda _: None))

    @property
    def layers(self) -> tuple[Layer, ...]:
        """In the order of the model."""
        return self.trials.layers

    def fits(self, subset: Subset) -> bool:
        """Whether these layers have a plan."""
        return not subset or not isinstance(self.trials.plan_of(subset), Refusal)

    def by_scores(self, scores: Mapping[str, float]) -> Subset:
        """What `--train-scores` chooses."""
        values = [scores[layer.name] for layer in self.layers]
        rows = list(self.trials.rows().values())
        choice = choose_subset(values, rows, self.trials.plan_of, 60)
        return choice.chosen or frozenset()

    def in_order(self, order: Sequence[int], *, stops: bool) -> Subset:
        """Layers in some order as long as they fit; the others are skipped, or end it."""
        chosen: Subset = frozenset()
        for at in order:
            if self.fits(chosen | {at}):
                chosen |= {at}
            elif stops:
                break
        return chosen

    def names(self, subset: Subset) -> tuple[str, ...]:
        """Of the layers of a subset."""
        return tuple(self.layers[at].name for at in sorted(subset))


@dataclass(frozen=True)
class Shifted:
    """Pretrained networks, one for each seed, and the digits of the device."""

    shift: str
    networks: Sequence[Network]
    known: Digits
    test: Digits

    def sample(self, seed: int) -> Digits:
        """The few digits to learn from."""
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randperm(len(self.known.y), generator=generator)[:FEW]
        return Digits(self.known.x[drawn], self.known.y[drawn])

    def accuracy_of(self, seed: int, names: Sequence[str]) -> float:
        """After the named layers have learned from them."""
        tuned = fine_tuned(self.networks[seed], names, self.sample(seed), seed)
        return accuracy(tuned, self.test)

    def scores(self, seed: int, training: Training) -> dict[str, float]:
        """Of the layers, for these digits."""
        sample = self.sample(seed)
        data = Data({"x": sample.x.numpy(), "labels": sample.y.numpy()}, {}, self.shift)
        return xe.layer_scores(training, data, samples=32, seed=seed)

    def row(self, kib: int | None, way: str, layers: Sequence[Sequence[Sequence[str]]]) -> Row:
        """The row of a way that chooses these sets of layers for each seed, whose mean counts."""
        right = [
            fmean(self.accuracy_of(seed, names) for names in sets)
            for seed, sets in zip(SEEDS, layers, strict=True)
        ]
        count = Counter(" ".join(names) or "-" for sets in layers for names in sets)
        chosen = (f"{names} ({n})" if len(count) > 1 else names for names, n in count.items())
        return {
            "digits": self.shift,
            "budget_kib": kib,
            "trained": way,
            "accuracy": round(100 * fmean(right), 1),
            "deviation": round(100 * stdev(right), 1),
            "layers": "; ".join(chosen),
        }


def random_sets(budget: Budget, seed: int) -> list[tuple[str, ...]]:
    """Layers in random orders, as long as they fit."""
    random = np.random.default_rng(seed)
    orders = [random.permutation(len(LAYERS)).tolist() for _ in range(RANDOM_SUBSETS)]
    return [budget.names(budget.in_order(order, stops=False)) for order in orders]


def measure() -> Iterator[Row]:
    """Rows of all shifts, budgets and ways."""
    torch.set_num_threads(1)  # the network is too small for more
    known, unknown = digits()
    networks = [pretrained(seed, known) for seed in SEEDS]
    trainings = [training_of(network) for network in networks]
    budgets = {kib: Budget.of(trainings[0], kib) for kib in BUDGETS_KIB}
    for shift in SHIFTS:
        device = Shifted(shift, networks, known.shifted(shift), unknown.shifted(shift))
        for way, names in (("none", ()), ("the classifier", LAYERS[-1:]), ("all", LAYERS)):
            yield device.row(None, way, [[names]] * len(SEEDS))
        scores = [device.scores(seed, trainings[seed]) for seed in SEEDS]
        for kib, budget in budgets.items():
            fisher = [[budget.names(budget.by_scores(score))] for score in scores]
            yield device.row(kib, "Fisher scores", fisher)
            last = budget.names(budget.in_order(range(len(LAYERS))[::-1], stops=True))
            yield device.row(kib, "the last layers", [[last]] * len(SEEDS))
            random = [random_sets(budget, seed) for seed in SEEDS]
            yield device.row(kib, "random layers", random)


def main() -> None:
    """Measure, record, and write the table."""
    for row in measure():
        record.record("trained_layers", row)
    (table,) = [one for one in tables.TABLES if one.name == "trained_layers"]
    tables.write(table)


if __name__ == "__main__":
    main()
