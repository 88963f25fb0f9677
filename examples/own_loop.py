"""Fit with a loss written in PyTorch, validation, and a checkpoint that a later run resumes."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import tvm_xengine as xe

model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
x = torch.randn(128, 8)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16, shuffle=True)
step = xe.compile(model, x[:16], loss=nn.HuberLoss(delta=0.5), optimizer=xe.SGD(0.05, momentum=0.9))
run = xe.fit(step, loader, epochs=3, checkpoint=xe.CheckpointOptions("run.ckpt", resume=True))
print(f"{run.steps_taken} steps, loss {run.losses[0]:.3f} to {run.losses[-1]:.3f}")
