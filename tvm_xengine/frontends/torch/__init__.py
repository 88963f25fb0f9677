"""Models exported by `torch.export`."""
