"""A training step is scheduled by a pass of TVM, in less memory; TVM alone builds and runs it."""

import numpy as np
import tvm
from tvm import relax

import tvm_xengine as xe

training = xe.training_step("resnet8", batch_size=16, optimizer="momentum")
stage = relax.get_pipeline("tvm_xengine", budget=0.7, time_limit_s=10)
scheduled = stage(training.step.mod)  # R.Tensor calls in the order of the plan, some repeated
train_step = relax.VirtualMachine(relax.build(scheduled, "llvm"), tvm.cpu())["train_step"]
state = [tvm.runtime.tensor(value) for value in training.step.initial_state.values()]
rate = tvm.runtime.tensor(np.array(0.05, "float32"))
for batch in xe.training_data(training, "digits").epoch(0, 16, seed=0):
    x, labels = (tvm.runtime.tensor(batch[name]) for name in ("x", "labels"))
    loss, correct, *state = train_step(x, labels, rate, *state)
print(f"loss {loss.numpy():.3f}, {correct.numpy():.0f} of 16 are right")
