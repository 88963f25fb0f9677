"""The stages from a training step to a plan, each a value."""
