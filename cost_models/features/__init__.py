"""Numbers that describe a lowered kernel, a library call and a machine."""
