"""What an exported program says before it is translated, and what it cannot mean."""
