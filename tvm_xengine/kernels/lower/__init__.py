"""TIR passes between a scheduled kernel and machine code."""
