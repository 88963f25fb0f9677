"""A feasible schedule in milliseconds, by evicting what is cheapest to bring back."""
