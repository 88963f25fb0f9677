"""What is wrong with the tensors of a module, before torch.export sees them."""

from __future__ import annotations

from collections import Counter
from itertools import chain

from torch import nn
from torch.nn.parameter import is_lazy

from tvm_xengine.errors import UnsupportedModelError


def check_tensors(title: str, module: nn.Module, prefix: str) -> None:
    """Refuse tensors without a shape, without values or of one name.

    Parameters
    ----------
    module
        What is exported: a module under `prefix`, and its loss.

    Raises
    ------
    UnsupportedModelError
        Names the first one, and says what to do.
    """
    held = list(chain(module.named_parameters(), module.named_buffers()))
    for target, one in held:
        name = target.removeprefix(prefix)
        if is_lazy(one):
            raise UnsupportedModelError(
                f"{title}: {name} has no shape yet; call the module once with a batch, which"
                " initialises its lazy layers, and make its optimizer afterwards"
            )
        if one.device.type == "meta":
            raise UnsupportedModelError(
                f"{title}: {name} lies on the device meta, where tensors have no values; make the module"
                " on a real device, or give it values with to_empty and load_state_dict"
            )
        if one.is_inference():
            raise UnsupportedModelError(
                f"{title}: {name} was made in torch.inference_mode, whose tensors take no gradients; make"
                " the module outside of it"
            )
    count = Counter(target.removeprefix(prefix) for target, _ in held)
    if twice := [name for name, times in count.items() if times > 1]:
        raise UnsupportedModelError(
            f"{title}: the module and its loss both have a tensor called {twice[0]}; call the part of the"
            " module something else than loss"
        )
