"""Plans that differ from a given one in a single decision, and what they cost."""
