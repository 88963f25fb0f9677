"""The compiled part of the search: decisions, what they come to, and random changes of them."""
