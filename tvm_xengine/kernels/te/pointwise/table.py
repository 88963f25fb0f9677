"""All pointwise operators by name."""

from __future__ import annotations

from tvm_xengine.kernels.te.pointwise.activations import ACTIVATIONS
from tvm_xengine.kernels.te.pointwise.bessel import BESSEL
from tvm_xengine.kernels.te.pointwise.bits import BITS
from tvm_xengine.kernels.te.pointwise.function import Pointwise
from tvm_xengine.kernels.te.pointwise.functions import FUNCTIONS
from tvm_xengine.kernels.te.pointwise.special import SPECIAL

POINTWISE: dict[str, Pointwise] = {**ACTIVATIONS, **BESSEL, **BITS, **FUNCTIONS, **SPECIAL}
