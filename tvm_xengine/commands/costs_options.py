"""What can be said to ``tvm-xengine costs``."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvm_xengine.kernels.sources import source_names

VERBS = {
    "noise": "how far two measurements of one kernel lie apart on this machine",
    "collect": "measure the kernels of networks in many sizes into a dataset",
    "refresh": "read the features of this version off the kernels that a dataset kept",
    "export": "write a dataset as a Parquet file",
    "import": "add the kernels of a Parquet file to a dataset",
    "measure": "measure the kernels of a model's training step, here or on a board behind RPC",
    "train": "learn a cost model from a dataset",
    "eval": "judge cost models on kernels they have not learned from",
    "predict": "what the kernels of a model's training step should cost",
    "transfer": "how well few measurements on another device do",
    "inspect": "what a dataset or a model file holds",
}

DEFAULT_TARGETS = ("llvm -mcpu=native", "llvm -mcpu=x86-64")
SOURCE_NAMES = source_names()
QUANTITY_NAMES = ("time", "energy", "memory")
SPLIT_NAMES = ("random", "family", "size", "unusual")


@dataclass(frozen=True)
class CostsRequest:
    """One of `VERBS` with what it works on; what a verb does not take is None or empty.

    Attributes
    ----------
    subject
        A model (measure, predict), a dataset folder or model file (inspect), or a Parquet file
        (import).
    rpc
        ``host:port`` of a TVM RPC server, or ``host:port/key`` of a tracker.
    """

    verb: str
    subject: str
    dataset: Path | None
    output: Path | None
    model: Path | None
    json: Path | None
    cache: Path | None
    platform: Path | None
    rpc: str | None
    targets: tuple[str, ...]
    sources: tuple[str, ...]
    networks: tuple[str, ...]
    splits: tuple[str, ...]
    quantity: str
    measurements: tuple[int, ...]
    kernels: int
    batch_size: int | None
    rounds: int
    seed: int
    with_baselines: bool
    is_sketch: bool


def add_costs_arguments(command: argparse.ArgumentParser) -> None:
    """A subcommand for each verb."""
    verbs = command.add_subparsers(dest="verb", required=True)
    for name, description in VERBS.items():
        verb = verbs.add_parser(name, help=description, description=description)
        verb.add_argument("--json", type=Path, metavar="FILE", help="write the result as JSON")
        _ARGUMENTS[name](verb)


def costs_request(options: argparse.Namespace) -> CostsRequest:
    """The request that parsed options make."""

    def given(name: str, default: Any = None) -> Any:
        return getattr(options, name, default)

    return CostsRequest(
        verb=options.verb,
        subject=str(given("subject", "")),
        dataset=given("dataset"),
        output=given("output"),
        model=given("cost_model"),
        json=options.json,
        cache=given("cache"),
        platform=given("platform"),
        rpc=given("rpc"),
        targets=tuple(given("targets") or ()),
        sources=tuple(given("sources") or ()),
        networks=tuple(given("networks") or ()),
        splits=tuple(given("splits") or ()),
        quantity=str(given("quantity", "time")),
        measurements=tuple(given("measurements") or ()),
        kernels=int(given("kernels", 0)),
        batch_size=given("batch"),
        rounds=int(given("rounds", 3)),
        seed=int(given("seed", 0)),
        with_baselines=bool(given("baselines", False)),
        is_sketch=bool(given("sketch", False)),
    )


def _noise(verb: argparse.ArgumentParser) -> None:
    _add_subject(verb, "MODEL", "whose kernels to time", default="lenet")
    verb.add_argument("--targets", nargs="+", metavar="TARGET", default=DEFAULT_TARGETS[:1])
    verb.add_argument("--rounds", type=_at_least_two, default=3, help="moments (3)")


def _collect(verb: argparse.ArgumentParser) -> None:
    _add_dataset(verb)
    verb.add_argument("--kernels", type=_positive, default=5000, help="stop at so many (5000)")
    verb.add_argument("--targets", nargs="+", metavar="TARGET", default=DEFAULT_TARGETS)
    verb.add_argument(
        "--sources",
        nargs="+",
        choices=SOURCE_NAMES,
        default=["tir"],
        help="where kernels come from, the first that has one (tir)",
    )
    verb.add_argument("--networks", nargs="+", metavar="NAME", help="of the zoo, or random")
    verb.add_argument("--rounds", type=_positive, default=3, help="moments (3)")
    verb.add_argument("--seed", type=seed, default=0)


def _refresh(verb: argparse.ArgumentParser) -> None:
    _add_dataset(verb)


def _export(verb: argparse.ArgumentParser) -> None:
    _add_dataset(verb)
    verb.add_argument("-o", "--output", type=Path, required=True, metavar="FILE")


def _import(verb: argparse.ArgumentParser) -> None:
    _add_subject(verb, "FILE", "Parquet file that costs export wrote")
    _add_dataset(verb)


def _measure(verb: argparse.ArgumentParser) -> None:
    _add_subject(verb, "MODEL", "zoo name, .onnx file or .pt2 file")
    verb.add_argument("--batch", type=_positive)
    verb.add_argument("--platform", type=Path, metavar="FILE", help="platform TOML file")
    verb.add_argument("--rpc", metavar="HOST:PORT[/KEY]", help="TVM RPC server, or tracker and key")
    verb.add_argument("--rounds", type=_positive, default=3)
    verb.add_argument("--cache", type=Path, metavar="FILE", help="file of measurements")


def _train(verb: argparse.ArgumentParser) -> None:
    _add_dataset(verb)
    verb.add_argument("-o", "--output", type=Path, required=True, metavar="FILE")
    verb.add_argument("--seed", type=seed, default=0)


def _eval(verb: argparse.ArgumentParser) -> None:
    _add_dataset(verb)
    verb.add_argument("--split", dest="splits", nargs="+", choices=SPLIT_NAMES, default=["family"])
    verb.add_argument(
        "--quantity",
        choices=QUANTITY_NAMES,
        default="time",
        help="time, measured energy, or the memory of library calls (time)",
    )
    verb.add_argument("--baselines", action="store_true", help="judge the simple models too")
    verb.add_argument(
        "--sketch",
        action="store_true",
        help="one member of half the trees: four times as fast, and nearly as good",
    )


def _predict(verb: argparse.ArgumentParser) -> None:
    _add_subject(verb, "MODEL", "zoo name, .onnx file or .pt2 file")
    verb.add_argument("--batch", type=_positive)
    verb.add_argument("--platform", type=Path, metavar="FILE", help="platform TOML file")
    verb.add_argument(
        "--cost-model", type=Path, metavar="FILE", help="instead of the one that is shipped"
    )


def _transfer(verb: argparse.ArgumentParser) -> None:
    _add_dataset(verb)
    verb.add_argument(
        "--measurements", type=_positive, nargs="+", default=[20, 50, 100, 250], metavar="K"
    )
    verb.add_argument(
        "--cost-model",
        type=Path,
        metavar="FILE",
        help='correct this model, or "shipped", instead of learning from the other devices',
    )


def _inspect(verb: argparse.ArgumentParser) -> None:
    _add_subject(verb, "FILE", "dataset folder or model file; the shipped model", default="")


_ARGUMENTS = {
    "noise": _noise,
    "collect": _collect,
    "refresh": _refresh,
    "export": _export,
    "import": _import,
    "measure": _measure,
    "train": _train,
    "eval": _eval,
    "predict": _predict,
    "transfer": _transfer,
    "inspect": _inspect,
}


def _add_subject(
    verb: argparse.ArgumentParser, metavar: str, description: str, default: str | None = None
) -> None:
    if default is None:
        verb.add_argument("subject", metavar=metavar, help=description)
    else:
        verb.add_argument("subject", metavar=metavar, help=description, nargs="?", default=default)


def _add_dataset(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--dataset", type=Path, required=True, metavar="DIR", help="dataset folder")


def _positive(text: str) -> int:
    return _whole(text, 1)


def _at_least_two(text: str) -> int:
    return _whole(text, 2)


def _whole(text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise argparse.ArgumentTypeError(
            f"expected a whole number of at least {least}, got {text!r}"
        )
    return value


def seed(text: str) -> int:
    """The seed that `text` is; the state of a network's random numbers holds 31 bits of it."""
    try:
        value = int(text)
    except ValueError:
        value = -1
    if not 0 <= value < 2**31:
        raise argparse.ArgumentTypeError(f"expected a seed from 0 to 2^31 - 1, got {text[:40]!r}")
    return value
