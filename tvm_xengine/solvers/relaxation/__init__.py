"""The time-point relaxation: lower bounds that enforce memory limits at selected points only."""
