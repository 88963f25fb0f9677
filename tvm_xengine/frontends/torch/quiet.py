"""PyTorch's exporter without what it prints, and without what it leaves in the process."""

from __future__ import annotations

import io
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr

_LOGS = (
    *("torch.export", "torch._export", "torch.fx.experimental.symbolic_shapes"),
    "torch._subclasses.fake_tensor",
)
"""Loggers that print graphs and tracebacks of a refusal, whose sentence is enough."""


@contextmanager
def quiet_export() -> Iterator[None]:
    """Hide warnings and logs of PyTorch's exporter; take back the environment variables it sets."""
    environment = dict(os.environ)
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(redirect_stderr(io.StringIO()))  # the graph of a refusal goes there
        for name in _LOGS:
            stack.enter_context(_without_log(name))
        try:
            yield
        finally:
            for name in os.environ.keys() - environment.keys():
                del os.environ[name]


@contextmanager
def _without_log(name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    was_disabled, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = was_disabled
