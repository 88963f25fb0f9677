"""Pictures of a plan for papers and notebooks, and files for other programs that draw."""
