"""Functions of single elements and their derivatives, as PyTorch defines both."""
