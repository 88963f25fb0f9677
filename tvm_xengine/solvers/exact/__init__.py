"""The exact stage model of the full problem."""
