"""Packages as the build systems of products take them."""
