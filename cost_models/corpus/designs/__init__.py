"""Network designs in many widths and sizes."""
