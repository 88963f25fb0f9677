"""Functions evaluated as their kernels are defined, in numpy: no schedule, no code generator, any width."""
