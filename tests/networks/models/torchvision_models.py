"""torchvision's models, whatever torch they were built for.

On machines without a GPU the published package lacks the binary for torch's CPU build, and without
the operators in it the package cannot be imported. No model of the table uses them.
"""

from types import ModuleType

import torch

_BOXES = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_OPERATORS = (f"nms{_BOXES}", f"qnms{_BOXES}")


def torchvision_models() -> ModuleType:
    """The module ``torchvision.models``."""
    try:
        from torchvision import models
    except RuntimeError as error:
        if "does not exist" not in str(error):
            raise
        library = torch.library.Library("torchvision", "FRAGMENT")
        for operator in _OPERATORS:
            library.define(operator)
        from torchvision import models
    return models
