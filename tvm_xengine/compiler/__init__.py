"""From a training step to an executable: lower, cost, plan, build."""
