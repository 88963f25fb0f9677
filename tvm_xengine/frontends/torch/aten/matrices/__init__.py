"""Linear algebra: a value from a kernel, and how it changes with the matrix, by PyTorch's formulas."""
