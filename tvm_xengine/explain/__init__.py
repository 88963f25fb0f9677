"""Explains a plan: what happens to each tensor and why, what binds, and what would help."""
