"""The cost models that are compared, with those of other packages.

To add one, name a cost model (`model.CostModel`), or what makes one when it is called without arguments,
in the entry points of a package::

    [project.entry-points."tvm_xengine.cost_models"]
    mine = "my_package.models:MyModel"
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

from tvm_xengine.cost_models.models.adapted import AdaptedTrees
from tvm_xengine.cost_models.models.baselines import LogLinear, NearestNeighbours, Roofline
from tvm_xengine.cost_models.models.boosted_trees import BoostedTrees
from tvm_xengine.cost_models.models.model import CostModel
from tvm_xengine.cost_models.models.perceptron import Perceptron
from tvm_xengine.extensions.extended import extended


def cost_models() -> dict[str, Callable[[], CostModel]]:
    """What makes each model, by the name of its entry point."""
    own: dict[str, Callable[[], CostModel]] = {
        "adapted-trees": AdaptedTrees,
        "boosted-trees": BoostedTrees,
        "roofline": Roofline,
        "nearest-neighbours": NearestNeighbours,
        "log-linear": LogLinear,
    }
    if find_spec("sklearn") is not None:
        own["neural-network"] = Perceptron
    return dict(extended("tvm_xengine.cost_models", own))
