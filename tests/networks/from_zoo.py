"""The networks of our own zoo beside the same networks written with torch."""

from __future__ import annotations

import torch
from torch import nn

from tests.networks.from_torch import ModuleOfSize
from tests.networks.network import Network, Pair, Setting, Subject
from tests.networks.rewritten import as_float64, without_dropout
from tvm_xengine.frontends import zoo
from tvm_xengine.frontends.model import ForwardModel


def zoo_network(
    name: str, reference: ModuleOfSize, full: Pair, checked: Pair, *, classes: int = 10
) -> Network:
    """The entry of a zoo network; `reference` lists its parameters in the same order, no dropout."""

    def built(setting: Setting) -> ForwardModel:
        return zoo.build(name, batch_size=setting.batch, size=setting.size, num_classes=classes)

    def subject(setting: Setting, dtype: torch.dtype) -> Subject:
        model = without_dropout(built(setting))
        if dtype is torch.float64:
            model = as_float64(model)
        module = reference(setting.size).train().to(dtype)
        return Subject(model, given_parameters(model, module), module)

    vocabulary = classes if zoo.spec_called(name).reads_tokens else None
    return Network(
        f"zoo {name}", "zoo", built, subject, Setting(*full), Setting(*checked), vocabulary
    )


def given_parameters(model: ForwardModel, module: nn.Module) -> dict[str, torch.Tensor]:
    """The parameters of a module under the names of a model, set to the values of the model."""
    leaves = dict(zip(model.parameters, module.parameters(), strict=True))
    with torch.no_grad():
        for name, leaf in leaves.items():
            value = torch.from_numpy(model.parameters[name])
            if leaf.shape != value.shape:
                raise AssertionError(f"{name} is {tuple(value.shape)}, torch's {tuple(leaf.shape)}")
            leaf.copy_(value)
    return leaves
