"""What a command line may say: groups of options, and the types of their values."""
