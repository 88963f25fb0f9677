"""Gradient rules, one file per family of ops; `rules.RULES` is the table of all of them."""
