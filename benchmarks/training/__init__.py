"""Steps as they run: time and memory beside PyTorch, and the time to compile them."""
