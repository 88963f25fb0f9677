"""Factorisations of matrices and solutions of linear systems, for stacks of shape (batch, rows, columns).

Plain loops, one matrix after the other, as every device can run them. What they compute from is the
matrix alone, so that a recomputation gives the same bits.
"""
