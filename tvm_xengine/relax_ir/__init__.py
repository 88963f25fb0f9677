"""What every later room reads from a Relax function: types, attributes, bindings, the op graph."""
