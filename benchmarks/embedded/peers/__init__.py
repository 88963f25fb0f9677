"""Exported C beside other projects that train on small devices."""
