"""Which of several things to do, where each has a value and only a plan says what fits together."""
