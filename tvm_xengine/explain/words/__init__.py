"""Explanations and comparisons as tables and sentences for a terminal."""
