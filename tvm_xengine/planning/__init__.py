"""From a problem to a plan: a schedule whose address layout fits every budget."""
