"""What more memory or a faster device would buy."""
