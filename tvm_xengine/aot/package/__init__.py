"""The files of an exported package."""
