"""Relax passes, one per file.

Errors that a pass raises travel through TVM's FFI, which turns those it does not know into
`RuntimeError`; the ones registered here arrive as what they are.
"""

import tvm_ffi

from tvm_xengine.errors import (
    InvalidScheduleError,
    MissingGradientError,
    UnsupportedModelError,
    UnsupportedModuleError,
)

for _error in (
    InvalidScheduleError,
    MissingGradientError,
    UnsupportedModelError,
    UnsupportedModuleError,
):
    tvm_ffi.register_error(_error.__name__, _error)
