"""The C functions of checkpoints."""
