#!/bin/sh
# Train a network in less memory, judge it, and take its weights home as a state_dict of PyTorch.
set -e
tvm-xengine estimate lenet
tvm-xengine train lenet --budget-ratio 0.7 --epochs 2 --save lenet.safetensors
tvm-xengine eval lenet --state lenet.safetensors
tvm-xengine export-state lenet.safetensors -o lenet.pt
