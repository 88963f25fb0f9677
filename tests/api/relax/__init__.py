"""Steps written in Relax, and the registered pipeline."""
