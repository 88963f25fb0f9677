"""What is known of integers that tensors are indexed with."""
