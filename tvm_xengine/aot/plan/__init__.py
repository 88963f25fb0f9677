"""Plans of training steps in the memory regions of one processor."""
