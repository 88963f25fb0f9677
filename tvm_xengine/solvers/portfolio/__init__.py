"""The default solver: local search and lower bounds that inform each other."""
