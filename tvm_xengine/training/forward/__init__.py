"""Changes to the forward function before it is differentiated or evaluated."""
