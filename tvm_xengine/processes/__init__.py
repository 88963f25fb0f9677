"""Signals that interrupt, and processes that end."""
