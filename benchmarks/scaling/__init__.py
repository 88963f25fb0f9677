"""Many machines, simulated."""
