"""The kernel and data files of a package."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tvm_xengine.aot.emit_c.math_functions import helper_definitions
from tvm_xengine.aot.emit_c.types_in_c import (
    HALF_TYPES,
    float_literal,
    int_literal,
    is_float,
    stored_type,
)
from tvm_xengine.aot.package.contents import Package

Array = NDArray[np.generic]

_INCLUDES = "#include <math.h>\n#include <stdint.h>\n#include <string.h>"
_PER_LINE = 8
"""Literals of an array on one line of C: lines stay below 120 characters."""


def kernels_header(package: Package) -> str:
    """The text of ``<name>_kernels.h``: what the driver calls and reads."""
    prototypes = "\n".join(f"{code.prototype};" for code in package.kernel_functions)
    arrays = "\n".join(f"extern {declared};" for declared, _ in _arrays(package))
    guard = f"{package.macro}_KERNELS_H"
    return f"""\
/* Private to {package.name}. */
#ifndef {guard}
#define {guard}

#include <stdint.h>

{prototypes}

{arrays}

#endif
"""


def kernels_source(package: Package) -> str:
    """The text of ``<name>_kernels.c``."""
    used = set[str]().union(*(code.helpers for code in package.kernel_functions))
    parts = [
        f'/* Kernels of {package.name}. */\n#include "{package.name}_kernels.h"\n\n{_INCLUDES}',
        # GCC never fuses in ISO C mode; clang must be told.
        "#ifdef __clang__\n#pragma STDC FP_CONTRACT OFF\n#endif",
        *helper_definitions(used),
        *(code.source for code in package.kernel_functions),
    ]
    return "\n\n".join(parts) + "\n"


def data_source(package: Package) -> str:
    """The text of ``<name>_data.c``: constants and the initial state, for flash."""
    parts = [
        f"/* Constants and initial state of {package.name}. */\n"
        f'#include "{package.name}_kernels.h"\n\n#include <math.h>',
        *(f"{declared} = {{\n{_values(array)}}};" for declared, array in _arrays(package)),
    ]
    return "\n\n".join(parts) + "\n"


def _arrays(package: Package) -> Iterator[tuple[str, Array]]:
    """(declaration, values) of each constant array."""
    named = [(name, array) for name, array in package.constants.items()]
    named += [
        (f"initial_{tensor.c_name}", tensor.initial)
        for tensor in package.state
        if not tensor.starts_as_zero_bytes
    ]
    align = "_Alignas(16) " if package.backend.value == "llvm" else ""
    for name, array in named:
        kind = stored_type(str(array.dtype))
        yield f"{align}const {kind} {package.name}_{name}[{array.size}]", array


def _values(array: Array) -> str:
    dtype = str(array.dtype)
    flat = np.ascontiguousarray(array).reshape(-1)
    if dtype in HALF_TYPES:
        literals = [str(bits) for bits in flat.view("uint16").tolist()]
    elif is_float(dtype):
        literals = [float_literal(value, dtype) for value in flat.tolist()]
    else:
        literals = [int_literal(int(value), dtype) for value in flat.tolist()]
    rows = [literals[at : at + _PER_LINE] for at in range(0, len(literals), _PER_LINE)]
    return ",\n".join("    " + ", ".join(row) for row in rows)
