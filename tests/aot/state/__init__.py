"""State of packages in C: checkpoints, slots, migration."""
