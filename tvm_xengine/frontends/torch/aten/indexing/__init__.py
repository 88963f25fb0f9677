"""Elements that are read, written, sorted or gathered by their places."""
