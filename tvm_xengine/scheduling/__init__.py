"""The scheduling problem and its solutions in plain numbers: graph, platform, schedule, validation."""
