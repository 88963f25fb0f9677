"""What a user brings to a training step: the model, its loss and its optimizer, checked."""
