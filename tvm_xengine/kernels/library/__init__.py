"""Code shared by kernel libraries: calls, the ops of a kernel, contexts."""
