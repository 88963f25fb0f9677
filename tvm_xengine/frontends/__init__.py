"""From a model in a file, a module or the zoo to a `ForwardModel`."""

from tvm_xengine.frontends.load import load_model
from tvm_xengine.frontends.model import ForwardModel

__all__ = ["ForwardModel", "load_model"]
