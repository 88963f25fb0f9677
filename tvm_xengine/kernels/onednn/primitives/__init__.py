"""How oneDNN's primitives compute training kernels, a file for each kind of them."""
