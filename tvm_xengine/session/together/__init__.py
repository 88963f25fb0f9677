"""Several training steps on one machine: planned under one budget, built in shared arenas, run in turns."""
