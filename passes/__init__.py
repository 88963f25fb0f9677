"""Relax passes, one per file.

Errors that a pass raises travel through TVM's FFI, which turns those it does not know into
`RuntimeError`; the ones registered here arrive as what they are.
"""

import tvm_ffi

from tvm_xengine import errors

for _name, _error in vars(errors).items():
    if isinstance(_error, type) and issubclass(_error, errors.XEngineError):
        tvm_ffi.register_error(_name, _error)
