"""The state of a model by its author's names: in memory, in files, in PyTorch's form, in checkpoints."""
