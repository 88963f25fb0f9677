"""A batch that is divided over machines."""
