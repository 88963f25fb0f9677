"""Loops for contractions: matrix products, and convolutions read as such."""
