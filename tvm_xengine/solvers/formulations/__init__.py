"""Mathematical programs whose solutions are schedules, one file each."""
