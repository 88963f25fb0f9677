"""The threads that share the work of a kernel, generated or of a library."""
