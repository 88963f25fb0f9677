"""From high-level operators to kernel calls, in forms that other passes can read."""
