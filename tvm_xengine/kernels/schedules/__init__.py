"""Rules that give a kernel good loops for a CPU."""
