"""Which layers are trained: their scores, and the choice under a budget."""
