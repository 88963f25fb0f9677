"""A training run in the library: stages from model to step, the step itself, its state and loop."""
