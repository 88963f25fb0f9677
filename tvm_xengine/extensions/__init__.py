"""What other packages add to the tables of this one, through entry points."""
