"""transformers' networks as functions of tokens alone; their configurations need no download."""

import torch
from torch import nn

from tests.networks.models.torchvision_models import torchvision_models


class Bert(nn.Module):
    """BERT-base (Devlin et al. 2019) with a classifier of the whole text."""

    def __init__(self, *, classes: int = 2) -> None:
        super().__init__()
        torchvision_models()  # which transformers imports
        from transformers import BertConfig, BertForSequenceClassification

        self.model = BertForSequenceClassification(BertConfig(num_labels=classes))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=tokens).logits


class GPT2(nn.Module):
    """GPT-2 small (Radford et al. 2019); the logits of all positions are rows."""

    def __init__(self) -> None:
        super().__init__()
        torchvision_models()  # which transformers imports
        from transformers import GPT2Config, GPT2LMHeadModel

        self.model = GPT2LMHeadModel(GPT2Config(use_cache=False))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=tokens).logits.flatten(0, 1)
