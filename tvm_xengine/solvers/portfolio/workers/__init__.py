"""What works in threads of its own for the portfolio: the search, and proofs of several kinds."""
