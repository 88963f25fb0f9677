"""Published heuristics for comparison, one file each."""
