"""Straight-line programs: what a plan executes, as plain data from which emitters make code."""
