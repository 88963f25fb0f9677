"""Times kernels and links, and keeps what was measured."""
