"""Published heuristics that every answer is compared with, one file each."""
