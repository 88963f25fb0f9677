"""The workloads that arguments of ``train`` name: models, or a TOML file with options of each."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from os.path import realpath
from pathlib import Path
from typing import Any, TypeVar

import tomlkit
from cyclopts import CycloptsError
from tomlkit.exceptions import TOMLKitError

from tvm_xengine.commands.app import TrainOptions, app
from tvm_xengine.commands.arguments.options import SaveOptions
from tvm_xengine.commands.arguments.training_options import StateOptions
from tvm_xengine.commands.arguments.usage import UsageError
from tvm_xengine.files.read_text import read_text

_FILE = ".toml"
_TABLE = "workload"
_OF_ALL = frozenset(
    {"platform", "budget", "budget_ratio", "cache", "database", "costs", "solver", "backend"}
    | {
        "objective",
        "time_limit",
        "work_limit",
        "gap",
        "json",
        "quiet",
        "schedule",
        "replan",
        "share",
    }
)
"""Options of the machine and of the plans, which workloads share, and those that take one model only."""

_Options = TypeVar("_Options")


@dataclass(frozen=True)
class NamedWorkload:
    """A model with its options.

    Attributes
    ----------
    name
        What reports and files call it.
    share
        Steps in its turn.
    """

    name: str
    model: str
    share: int
    options: TrainOptions


def workloads_of(models: Sequence[str], options: TrainOptions) -> tuple[NamedWorkload, ...]:
    """The workloads that arguments name.

    Raises
    ------
    UsageError
        If there is none, or two would write the same file.
    """
    if not models:
        raise UsageError("expected a model, such as lenet; see --help")
    shares = options.loop.share
    files = [model for model in models if Path(model).suffix.lower() == _FILE]
    if files:
        if len(models) > 1 or shares:
            raise UsageError(
                f"a file of workloads names all models and their shares: give {files[0]} alone, without"
                " other models and --share"
            )
        return _read_workloads(Path(files[0]), options)
    if len(models) == 1:
        if shares:
            raise UsageError("--share is for several models; leave it out")
        return (NamedWorkload("", models[0], 1, options),)
    if shares and len(shares) != len(models):
        raise UsageError(
            f"expected a share for each of {len(models)} models, got {len(shares)}: --share"
            f" {' '.join('1' for _ in models)}"
        )
    names = _different([Path(model).stem for model in models])
    return _checked(
        NamedWorkload(name, model, share, _with_own_files(options, name))
        for name, model, share in zip(names, models, shares or (1,) * len(models), strict=True)
    )


def _read_workloads(path: Path, options: TrainOptions) -> tuple[NamedWorkload, ...]:
    """The ``[[workload]]`` tables of a file; options of the command line hold for all of them."""
    try:
        document = tomlkit.parse(read_text(path)).unwrap()
    except OSError as error:
        raise UsageError(f"cannot read the workloads {path}: {error.strerror}") from error
    except (TOMLKitError, ValueError, RecursionError, AttributeError, TypeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from error
    tables = document.get(_TABLE)
    if set(document) != {_TABLE} or not isinstance(tables, list) or not all(map(_is_table, tables)):
        raise UsageError(
            f"{path}: expected [[workload]] tables and nothing else, found {sorted(document)}"
        )
    models = [table.get("model") for table in tables]
    for number, model in enumerate(models, 1):
        if not isinstance(model, str):
            raise UsageError(f'{path}: workload {number} needs a model, such as model = "lenet"')
    names = _different([str(table.get("name", Path(table["model"]).stem)) for table in tables])
    return _checked(
        _workload(f"{path}: workload {name}", name, table, options)
        for name, table in zip(names, tables, strict=True)
    )


def _workload(
    where: str, name: str, table: Mapping[str, Any], options: TrainOptions
) -> NamedWorkload:
    share = table.get("share", 1)
    if type(share) is not int or share < 1:
        raise UsageError(f"{where}: share must be a whole number of at least 1, got {share!r}")
    if not name or "/" in name or not isinstance(table.get("name", ""), str):
        raise UsageError(f"{where}: a name is text without /, which stands in names of files")
    given = {
        key.replace("-", "_"): value
        for key, value in table.items()
        if key not in ("model", "name", "share")
    }
    known = [one for one in _leaves(TrainOptions()) if one not in _OF_ALL]
    for key in given:
        if key in _OF_ALL:
            raise UsageError(
                f"{where}: {key} holds for all workloads, or for one model only; give it on the command"
                " line"
            )
        if key not in known:
            raise UsageError(f"{where} has no option {key}; it takes {', '.join(sorted(known))}")
    tokens = ["train", table["model"], *_tokens(where, given)]
    try:
        _, bound, _ = app.parse_args(tokens, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        raise UsageError(f"{where}: {' '.join(str(error).split())}") from error
    own = bound.arguments.get("options", TrainOptions())
    mine = _with_values(_with_own_files(options, name), own, given)
    return NamedWorkload(name, table["model"], share, mine)


def _tokens(where: str, given: Mapping[str, Any]) -> Iterator[str]:
    """The options as they would stand on the command line."""
    for key, value in given.items():
        option = f"--{key.replace('_', '-')}"
        if value is False:
            continue
        values = value if isinstance(value, list) else [] if value is True else [value]
        for one in values:
            if isinstance(one, bool) or not isinstance(one, str | int | float):
                raise UsageError(f"{where}: {key} must be text, a number, true or a list of these")
        yield option
        yield from map(str, values)


def _with_values(options: _Options, own: _Options, names: Collection[str]) -> _Options:
    """The options, with those that are named as in `own`."""
    changed: dict[str, Any] = {}
    for one in fields(options):  # type: ignore[arg-type]
        mine, theirs = getattr(options, one.name), getattr(own, one.name)
        if is_dataclass(mine):
            changed[one.name] = _with_values(mine, theirs, names)
        elif one.name in names:
            changed[one.name] = theirs
    return replace(options, **changed)  # type: ignore[type-var]


def _leaves(options: object) -> Iterator[str]:
    """Names of all options."""
    for one in fields(options):  # type: ignore[arg-type]
        value = getattr(options, one.name)
        if is_dataclass(value):
            yield from _leaves(value)
        else:
            yield one.name


def _with_own_files(options: TrainOptions, name: str) -> TrainOptions:
    """The options with the name of the workload in each file that it writes or resumes from."""
    return replace(
        options,
        state=_with_name(options.state, name),
        plan=replace(options.plan, save=_with_name(options.plan.save, name)),
    )


def _with_name(files: _Options, name: str) -> _Options:
    paths = _paths(files)
    changed = {key: path.with_name(f"{path.stem}.{name}{path.suffix}") for key, path in paths}
    return replace(files, **changed)  # type: ignore[type-var]


def _paths(files: object) -> list[tuple[str, Path]]:
    given = ((one.name, getattr(files, one.name)) for one in fields(files))  # type: ignore[arg-type]
    return [(key, value) for key, value in given if isinstance(value, Path)]


def _different(names: Sequence[str]) -> list[str]:
    """The names, with a number where one stands twice."""
    seen: dict[str, int] = {}
    different: list[str] = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        different.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    if len(set(different)) != len(different):
        raise UsageError(f"expected different names of workloads, got {', '.join(names)}")
    return different


def _checked(workloads: Iterator[NamedWorkload]) -> tuple[NamedWorkload, ...]:
    """The workloads, none of which writes a file of another.

    Raises
    ------
    UsageError
        If two do.
    """
    every = tuple(workloads)
    if not every:
        raise UsageError("expected at least one [[workload]]")
    writer: dict[Path, str] = {}
    for one in every:
        files: tuple[StateOptions | SaveOptions, ...] = (one.options.state, one.options.plan.save)
        for path in {Path(realpath(path)) for file in files for _, path in _paths(file)}:
            if path in writer:
                raise UsageError(
                    f"{one.name} and {writer[path]} would both write {path.name}; give each its own"
                )
            writer[path] = one.name
    return every


def _is_table(value: object) -> bool:
    return isinstance(value, dict)
