"""Transcendental functions as arithmetic that LLVM can vectorise."""
