"""Networks written here in PyTorch."""
