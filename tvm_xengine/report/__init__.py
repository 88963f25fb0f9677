"""Plans, runs and cost models as tables, JSON and plots."""
