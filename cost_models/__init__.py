"""Cost models: measure kernels, describe them, learn and predict their time and memory."""
