"""Models that look harmless and mean something that a naive compiler gets wrong."""
