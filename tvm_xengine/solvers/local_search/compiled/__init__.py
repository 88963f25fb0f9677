"""The compiled part of the search: decisions, their decoding, and random changes of them."""
