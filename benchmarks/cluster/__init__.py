"""Steps over several processes, against PyTorch on the same processes."""
