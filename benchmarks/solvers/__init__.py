"""Solvers on extracted training graphs: values, bounds, proofs."""
