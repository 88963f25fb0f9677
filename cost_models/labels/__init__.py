"""Measured times that ship with the package, without the kernels, which are made anew."""
