"""What a process that ``tvm-xengine launch`` has started knows of that."""

from __future__ import annotations

import os

RENDEZVOUS = "TVM_XENGINE_RENDEZVOUS"
"""Environment variable with the file in which the processes of `tvm-xengine launch` find each other."""


def is_launched() -> bool:
    """Whether this process is one of several whose command speaks for them."""
    return RENDEZVOUS in os.environ
