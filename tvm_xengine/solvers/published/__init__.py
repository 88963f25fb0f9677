"""Published models and heuristics, as their papers state them."""
