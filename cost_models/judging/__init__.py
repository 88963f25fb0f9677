"""How well cost models predict kernels that they have not learned from."""
