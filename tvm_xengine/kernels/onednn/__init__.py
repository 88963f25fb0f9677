"""Intel's oneDNN on CPUs, through its C API."""
