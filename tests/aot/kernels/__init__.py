"""Kernels of packages in C, against the same kernels in the virtual machine."""
