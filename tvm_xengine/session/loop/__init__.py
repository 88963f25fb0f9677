"""Training over data: the loop, its validation, and the batches of both."""
