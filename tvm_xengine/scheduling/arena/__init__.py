"""Byte addresses for everything that a schedule keeps on a device."""
