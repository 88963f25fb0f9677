"""What kernel libraries share: calls, the ops a kernel is made of, contexts."""
