"""What a machine can do, measured in minutes, and what predictions make of it."""
