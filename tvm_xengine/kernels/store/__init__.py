"""Machine code and tuned schedules of kernels, kept on disk."""
