"""NVIDIA's libraries and compilers on this machine."""
