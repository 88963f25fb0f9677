"""The cost models that are compared, with those of other packages.

To add one, name a cost model (`model.CostModel`), or what makes one when it is called without arguments,
in the entry points of a package::

    [project.entry-points."tvm_xengine.cost_models"]
    mine = "my_package.models:MyModel"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec

from tvm_xengine.cost_models.models.adapted import AdaptedTrees
from tvm_xengine.cost_models.models.baselines import LogLinear, NearestNeighbours, Roofline
from tvm_xengine.cost_models.models.boosted_trees import BoostedTrees
from tvm_xengine.cost_models.models.model import CostModel
from tvm_xengine.cost_models.models.perceptron import Perceptron
from tvm_xengine.errors import ExtensionError
from tvm_xengine.extensions.extended import extended


def cost_models() -> Mapping[str, CostModel | Callable[[], CostModel]]:
    """Each model, or what makes it, by the name of its entry point."""
    own: dict[str, CostModel | Callable[[], CostModel]] = {
        "adapted-trees": AdaptedTrees,
        "boosted-trees": BoostedTrees,
        "roofline": Roofline,
        "nearest-neighbours": NearestNeighbours,
        "log-linear": LogLinear,
    }
    if find_spec("sklearn") is not None:
        own["neural-network"] = Perceptron
    return extended("tvm_xengine.cost_models", own)


def cost_model(name: str) -> CostModel:
    """The model with a name.

    Raises
    ------
    ExtensionError
        If another package names what is no model.
    """
    named = cost_models()[name]
    said = (
        f"cost model {name!r}: expected an object with name and fit at its entry point, or what makes"
        f" one when it is called without arguments, got {named!r}"
    )
    try:
        found: object = named() if callable(named) else named
    except TypeError as error:
        raise ExtensionError(said) from error
    if not isinstance(found, CostModel):
        raise ExtensionError(said)
    return found
