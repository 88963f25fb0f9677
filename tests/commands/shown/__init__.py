"""What is printed: tables, progress, help, completion."""
