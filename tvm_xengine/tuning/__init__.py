"""Search for better schedules of generated kernels, and keep what was found."""
