"""A feasible schedule in milliseconds."""
