"""Interrupts, disks and wrong input."""
