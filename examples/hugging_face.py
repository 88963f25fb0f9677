"""Train a model of Hugging Face that its configuration alone describes; it brings its own loss."""

import torch
from transformers import BertConfig, BertForSequenceClassification

import tvm_xengine as xe

config = BertConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2)
model = BertForSequenceClassification(config)
tokens = torch.randint(0, 64, (8, 16))
batch = {"input_ids": tokens, "labels": (tokens[:, 0] > 31).long()}
step = xe.compile(model, batch, optimizer=xe.AdamW(0.001), budget=0.7, costs="predicted")
losses = [float(step(batch)) for _ in range(20)]
print(f"loss {losses[0]:.3f} to {losses[-1]:.3f}")
step.load_into(model)  # the trained weights, for `model.save_pretrained`
