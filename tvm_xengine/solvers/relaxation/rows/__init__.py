"""The rows of the time point relaxation, each written by a function named after what it says."""
