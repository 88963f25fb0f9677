"""GPUs: a fake one for every machine, and what runs on it and on real ones."""
