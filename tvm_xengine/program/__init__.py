"""Straight-line programs: the calls of a plan as plain data, from which emitters generate code."""
