"""Commands that run in several processes."""
