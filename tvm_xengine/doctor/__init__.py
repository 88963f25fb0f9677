"""Looks at what is installed here: what works, what is missing, and how to get it."""
