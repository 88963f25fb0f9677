"""A* over what is resident where: the proven optimum of small graphs."""
