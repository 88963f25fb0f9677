"""Schedules of a step whose batch is divided in shares among devices."""
