"""Training steps as plain C for targets without TVM, heap or operating system."""
