"""The quadratic program of the full problem, whole or in exact windows around a schedule."""
