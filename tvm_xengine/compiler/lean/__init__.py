"""Forms of a step that need less memory."""
