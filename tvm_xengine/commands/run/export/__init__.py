"""``export`` and ``export-state``: what leaves for other machines."""
