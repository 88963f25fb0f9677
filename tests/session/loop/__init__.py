"""The training loop: fit, checkpoints, resuming, schedules, planning again."""
