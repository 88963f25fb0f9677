"""What the author of an exported network meant, as far as the file tells."""
