"""Lower bounds on what is left of a schedule."""
