"""A dataset as scikit-learn's examples have it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tvm_xengine.cost_models.dataset.dataset import Dataset
from tvm_xengine.errors import InvalidDatasetError

_DESCRIBED = """Kernels of training steps, one row each.

data       features of the lowered kernel and its machine (feature_names); nothing of them is measured
target     run time in microseconds, as a step leaves the caches
hot_us     called again and again; not a number where that was not measured
work       statements that a call executes; models predict target / work
groups     the family of networks that a kernel occurs in first, for GroupKFold
"""


def as_bunch(data: Dataset) -> Any:
    """A `sklearn.utils.Bunch` of the rows, with ``data``, ``target``, ``feature_names`` and ``groups``.

    Raises
    ------
    InvalidDatasetError
        When scikit-learn is missing.
    """
    try:
        from sklearn.utils import Bunch
    except ImportError as error:
        raise InvalidDatasetError(
            "a Bunch needs scikit-learn; install it with pip install 'tvm-xengine[data]'"
        ) from error
    return Bunch(
        data=data.table.values,
        target=data.time_us,
        feature_names=list(data.table.names),
        target_names=["time_us"],
        hot_us=data.hot_us,
        work=data.table.work,
        flops=data.table.flops,
        moved_bytes=data.table.moved_bytes,
        groups=np.array([families[0] for families in data.families]),
        families=data.families,
        kernels=np.array(data.kernels),
        names=np.array(data.names),
        sources=np.array(data.sources),
        targets=np.array(data.targets),
        DESCR=_DESCRIBED,
    )
