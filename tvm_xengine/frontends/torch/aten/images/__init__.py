"""ATen operators on images and other grids."""
