"""Values that are not ordinary: kinks, nan, short types."""
