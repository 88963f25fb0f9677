"""Reads files for the fuzzers in a process of its own: one that may crash, hang or eat memory."""

from __future__ import annotations

import json
import os
import resource
import sys
import traceback
import warnings
from pathlib import Path

from tests.fuzz.readers import KINDS
from tvm_xengine.errors import XEngineError

MOST_BYTES = 6 << 30
"""Data of the process: libraries take about two gigabytes, files are a few kilobytes."""


def main() -> None:
    """Answer every line ``[kind, path]`` with ``read``, ``refused`` or a traceback, as JSON."""
    # What libraries print must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    for line in sys.stdin:
        kind, path = json.loads(line)
        try:
            KINDS[kind].read(Path(path))
            answer = "read"
        except XEngineError as error:
            answer = "refused" if str(error).strip() else "refused without a reason"
        except BaseException:
            answer = traceback.format_exc()
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
