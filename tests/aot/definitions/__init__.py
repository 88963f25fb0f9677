"""Tests of what self-tests compare with."""
