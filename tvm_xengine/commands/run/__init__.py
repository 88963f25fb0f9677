"""The bodies of commands; loaded when a command runs."""
