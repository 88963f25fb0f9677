"""Plans in which devices and links run side by side: layouts and schedules with few waits for memory."""
