"""The worker process of a backend: reads a program, writes what it finds.

Where work is counted, the worker waits after each piece for a byte on standard input.

Run as ``python -m tvm_xengine.solvers.backends.worker NAME PARENT``, where PARENT is the number of the
process with which it ends. Standard input holds one pickled
pair (program, options); standard output is a stream of pickled `Incumbent`s that ends with an
`Answer` or an `Unavailable`. Whatever a library prints goes to standard error instead.
"""

from __future__ import annotations

import os
import pickle
import sys

from tvm_xengine.errors import ExtensionError
from tvm_xengine.processes.end_with_parent import end_with_parent
from tvm_xengine.solvers.backends.answer import GO_ON, Answer, Incumbent, Unavailable
from tvm_xengine.solvers.backends.table import backend_function


def main(name: str) -> None:
    """Solve the program on standard input with the backend called `name`."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def send(message: object) -> None:
        pickle.dump(message, out, protocol=pickle.HIGHEST_PROTOCOL)
        out.flush()
        if isinstance(message, Incumbent) and message.work_s is not None:
            sys.stdin.buffer.read(len(GO_ON))

    program, options = pickle.load(sys.stdin.buffer)
    try:
        answer: object = backend_function(name)(program, options, send)
    except ExtensionError as error:
        answer = Unavailable(str(error))
    if not isinstance(answer, Answer | Unavailable):
        answer = Unavailable(f"expected an Answer from its function, got {answer!r}")
    send(answer)


if __name__ == "__main__":
    end_with_parent(int(sys.argv[2]))
    main(sys.argv[1])
