"""The worker process of a backend: reads a program, writes what it finds.

Run as ``python -m tvm_xengine.solvers.backends.worker NAME``. Standard input holds one pickled
pair (program, options); standard output is a stream of pickled `Incumbent`s that ends with an
`Answer` or an `Unavailable`. Whatever a library prints goes to standard error instead.
"""

from __future__ import annotations

import importlib
import os
import pickle
import sys

MODULES = {
    "highs": "tvm_xengine.solvers.backends.highs",
    "scip": "tvm_xengine.solvers.backends.scip",
    "gurobi": "tvm_xengine.solvers.backends.gurobi",
    "cp-sat": "tvm_xengine.solvers.backends.cpsat",
}


def main(name: str) -> None:
    """Solve the program on standard input with the backend called `name`."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def send(message: object) -> None:
        pickle.dump(message, out, protocol=pickle.HIGHEST_PROTOCOL)
        out.flush()

    program, options = pickle.load(sys.stdin.buffer)
    backend = importlib.import_module(MODULES[name])
    send(backend.solve_program(program, options, send))


if __name__ == "__main__":
    main(sys.argv[1])
