"""From a forward function to one training step: loss, gradients, optimizer."""
