"""Flatten buffers without TVM's simplification of flat indices."""

from __future__ import annotations

import tvm
from tvm import tirx

from tvm_xengine.kernels.lower.hidden_indices import HideIndices, ShowIndices


def flatten_buffers() -> tvm.transform.Pass:
    """``FlattenBuffer`` with indices that divide hidden; ``StmtSimplify`` is to follow."""
    return tvm.transform.Sequential([HideIndices(), tirx.transform.FlattenBuffer(), ShowIndices()])
