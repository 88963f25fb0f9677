"""A planned step as C source."""
