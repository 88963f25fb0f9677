"""Figures beside a peer in the same run; one command each, one table each in docs/results."""
