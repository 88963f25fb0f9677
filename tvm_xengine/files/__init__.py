"""Files and folders that are complete or absent, never half-written."""
