"""Steps over several processes: each holds some devices, and tensors move between them as messages."""
