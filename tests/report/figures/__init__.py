"""Pictures of a plan as files."""
