"""Training steps as libraries for TVM's virtual machine, for machines that run Linux."""
