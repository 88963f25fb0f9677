"""Searches for faster schedules of generated kernels with TVM's MetaSchedule."""
