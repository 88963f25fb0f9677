"""Which layers a package trains, where not all of them fit."""
