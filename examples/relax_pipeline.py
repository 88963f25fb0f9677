"""A training step is scheduled by a pass of TVM, in less memory; TVM alone builds and runs it."""

import tvm
from tvm import relax

import tvm_xengine as xe

training = xe.training_step("resnet8", batch_size=16, optimizer="momentum")
scheduled = relax.get_pipeline("tvm_xengine", budget=0.7, time_limit_s=10)(training.step.mod)
train_step = relax.VirtualMachine(relax.build(scheduled, "llvm"), tvm.cpu())["train_step"]
state = [tvm.runtime.tensor(value) for value in training.step.initial_state.values()]
for batch in xe.training_data(training, "digits").epoch(0, 16, seed=0):
    inputs = map(tvm.runtime.tensor, training.arguments(batch, lr=0.05))
    loss, correct, *state = train_step(*inputs, *state)
print(f"loss {loss.numpy():.3f}, {correct.numpy():.0f} of 16 are right")
