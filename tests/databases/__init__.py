"""Operator databases that others wrote, as judges of the front ends and of the gradients."""
