"""Names of state tensors in checkpoints, which depend on neither plan, batch size nor variables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tvm_xengine.frontends.roles import TensorRole

OF_MODEL = "model/"
"""Prefix of the model's own tensors, which go on under their author's names."""
OF_OPTIMIZER = "optimizer/"
"""Prefix of ``optimizer/<parameter>/<slot>``."""
OF_SETTING = "setting/"
"""Prefix of a setting of a package, such as the learning rate."""
OF_STEP = "step/"
"""Prefix of what belongs to the run: the number of steps, the seed of random numbers."""


def slot_names(
    roles: Iterable[TensorRole], slots: Mapping[str, Mapping[str, str]]
) -> dict[str, str]:
    """For each state tensor of the optimizer, its name in checkpoints."""
    named = {role.variable: role.name for role in roles}
    return {
        state: f"{OF_OPTIMIZER}{named.get(variable, variable)}/{slot}"
        for variable, by_slot in slots.items()
        for slot, state in by_slot.items()
    }


def saved_names(
    variables: Iterable[str],
    roles: Iterable[TensorRole],
    slots: Mapping[str, Mapping[str, str]],
) -> dict[str, tuple[str, ...]]:
    """For each of the `variables` of a step, the names it has in checkpoints, its own first."""
    roles = tuple(roles)
    known = {role.variable: tuple(f"{OF_MODEL}{name}" for name in role.names) for role in roles}
    known |= {state: (name,) for state, name in slot_names(roles, slots).items()}
    return {variable: known.get(variable, (f"{OF_STEP}{variable}",)) for variable in variables}
