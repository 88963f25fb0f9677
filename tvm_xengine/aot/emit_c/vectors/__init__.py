"""Vectors of four floats and dot products of int8, for Helium and Arm's DSP instructions."""
