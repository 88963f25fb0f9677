"""Problems on which solvers are tried."""
