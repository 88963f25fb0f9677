"""The body of a training step: its parameters, forward, backward and updates."""
