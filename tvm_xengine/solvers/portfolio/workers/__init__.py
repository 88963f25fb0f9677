"""The workers of the portfolio, one thread each: the search, and several kinds of proofs."""
