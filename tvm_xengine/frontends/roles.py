"""The roles of a model's tensors (trained, frozen, statistics, constants) and their names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from fnmatch import fnmatchcase

from tvm_xengine.checks.names import closest_first, some
from tvm_xengine.errors import UnsupportedModelError


class Use(Enum):
    """What a training step does with a tensor of the model."""

    TRAINED = "trained"
    FROZEN = "frozen"  # a parameter that its author or a pattern keeps as it is
    STATISTIC = "statistic"  # written by the forward function, e.g. a running mean
    CONSTANT = "constant"  # a buffer, or a number that stands in the model


@dataclass(frozen=True)
class TensorRole:
    """One tensor of a model.

    Attributes
    ----------
    variable
        Its name in the Relax functions.
    name
        Its name in the file or module that the model comes from.
    also
        Further names of the same tensor, when the model shares it.
    reason
        Why it has this use, where that is not plain.
    """

    variable: str
    name: str
    use: Use
    also: tuple[str, ...] = ()
    reason: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Every name of the tensor."""
        return (self.name, *self.also)

    @property
    def is_parameter(self) -> bool:
        """Whether it may be trained."""
        return self.use in (Use.TRAINED, Use.FROZEN)


def chosen_roles(
    roles: Iterable[TensorRole],
    train: Sequence[str] | None = None,
    freeze: Sequence[str] = (),
) -> tuple[TensorRole, ...]:
    """The roles after patterns said what is trained and what is frozen.

    Parameters
    ----------
    train
        Patterns (as in a shell) of the parameters to train, whatever the model says of them; all
        others are frozen. None leaves the choice of the model.
    freeze
        Patterns of parameters to keep as they are; they win over `train`.

    Raises
    ------
    UnsupportedModelError
        If a pattern matches no parameter.
    """
    roles = tuple(roles)
    for option, patterns in (("train", train or ()), ("freeze", freeze)):
        for pattern in patterns:
            _check_matches(option, pattern, roles)
    return tuple(_chosen(role, train, freeze) for role in roles)


def matches(role: TensorRole, pattern: str) -> bool:
    """Whether a pattern matches one of the names of a tensor."""
    return any(fnmatchcase(name, pattern) for name in role.names)


def _chosen(role: TensorRole, train: Sequence[str] | None, freeze: Sequence[str]) -> TensorRole:
    if not role.is_parameter:
        return role
    for pattern in freeze:
        if matches(role, pattern):
            return replace(role, use=Use.FROZEN, reason=f"matches freeze={pattern!r}")
    if train is None:
        return role
    for pattern in train:
        if matches(role, pattern):
            return replace(role, use=Use.TRAINED, reason=f"matches train={pattern!r}")
    return replace(role, use=Use.FROZEN, reason="matches no pattern of train")


def _check_matches(option: str, pattern: str, roles: Sequence[TensorRole]) -> None:
    found = [role for role in roles if matches(role, pattern)]
    if any(role.is_parameter for role in found):
        return
    every = (role.name for role in roles if role.is_parameter)
    parameters = some(closest_first(every, pattern))
    if found:
        raise UnsupportedModelError(
            f"{option}={pattern!r} matches only {some(role.name for role in found)}, which"
            f" {'is a ' + found[0].use.value if len(found) == 1 else 'are no parameters'};"
            f" the parameters are {parameters}"
        )
    raise UnsupportedModelError(
        f"{option}={pattern!r} matches no parameter; the parameters are {parameters}"
    )
