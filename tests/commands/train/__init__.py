"""Commands that train, evaluate and save."""
