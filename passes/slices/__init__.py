"""Run a step slice by slice of its batch."""
