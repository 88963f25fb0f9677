"""Kernels and gradients of operators on stacks of matrices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tvm import relax

from tvm_xengine.errors import UnsupportedModelError
from tvm_xengine.kernels.te.linalg.cholesky import cholesky
from tvm_xengine.kernels.te.linalg.exponential import matrix_exp
from tvm_xengine.kernels.te.linalg.lu import lu_factor, lu_solve
from tvm_xengine.kernels.te.linalg.qr import product_of_reflections, reflectors
from tvm_xengine.kernels.te.linalg.singular import singular
from tvm_xengine.kernels.te.linalg.symmetric import eigen
from tvm_xengine.kernels.te.linalg.triangular import solve_triangular
from tvm_xengine.relax_ir.matrix_ops import VALUE_AND_CHANGE
from tvm_xengine.relax_ir.own_ops import PREFIX, options_of
from tvm_xengine.training.emitter import Emitter, Kernel, Option, shape_of
from tvm_xengine.training.rule import Gradients, Linearized, Rule, Site


@dataclass(frozen=True)
class _MatrixKernel:
    """A kernel and the options that the numbers of a call stand for."""

    kernel: Kernel
    options: Mapping[str, Callable[[float], Option]]

    def emitted(self, emitter: Emitter, site: Site) -> tuple[relax.Expr, ...]:
        """The results of the call."""
        numbers = options_of(site.source.call)
        given = {
            name: kind(number)
            for (name, kind), number in zip(self.options.items(), numbers, strict=True)
        }
        count = len(site.source.results)
        names = [site.name, *(f"{site.name}_{k}" for k in range(1, count))]
        return emitter.call_many(self.kernel, site.operands, site.name, names, **given)


_KERNELS = {
    "cholesky": _MatrixKernel(cholesky, {}),
    "eigen": _MatrixKernel(eigen, {"upper": bool}),
    "lu_factor": _MatrixKernel(lu_factor, {"pivot": bool}),
    "lu_solve": _MatrixKernel(lu_solve, {"transposed": bool}),
    "matrix_exp": _MatrixKernel(matrix_exp, {}),
    "product_of_reflections": _MatrixKernel(product_of_reflections, {"width": int}),
    "reflectors": _MatrixKernel(reflectors, {}),
    "singular": _MatrixKernel(singular, {"width": int}),
    "solve_triangular": _MatrixKernel(
        solve_triangular, {"upper": bool, "transposed": bool, "unit": bool}
    ),
}


def _without_gradient(name: str) -> Rule:
    def rule(emitter: Emitter, site: Site) -> Linearized:
        def pullback(_gradients: Gradients) -> Gradients:
            raise UnsupportedModelError(
                f"{name} (in {site.name}): PyTorch has no gradient of this form, and neither has"
                " this program; detach its operand"
            )

        return Linearized(_KERNELS[name].emitted(emitter, site), pullback)

    return rule


def _lu_solve(emitter: Emitter, site: Site) -> Linearized:
    """For X = A^-1 B: dB = A^-T dX; the factors are held fixed."""
    (transposed,) = options_of(site.source.call)

    def pullback(gradients: Gradients) -> Gradients:
        factors, pivots, _ = site.operands
        pulled = emitter.call(
            lu_solve,
            [factors, pivots, gradients[0]],
            site.grad_name(2),
            transposed=not transposed,
        )
        return (None, None, pulled)

    return Linearized(_KERNELS["lu_solve"].emitted(emitter, site), pullback)


def _solve_triangular(emitter: Emitter, site: Site) -> Linearized:
    """For X = T^-1 B: dB = T^-T dX; the triangle is held fixed."""
    upper, transposed, unit = (bool(number) for number in options_of(site.source.call))

    def pullback(gradients: Gradients) -> Gradients:
        pulled = emitter.call(
            solve_triangular,
            [site.operands[0], gradients[0]],
            site.grad_name(1),
            upper=upper,
            transposed=not transposed,
            unit=unit,
        )
        return (None, pulled)

    return Linearized(_KERNELS["solve_triangular"].emitted(emitter, site), pullback)


def _matrix_exp(emitter: Emitter, site: Site) -> Linearized:
    """dA is the upper right block of the exponential of [[A^T, dY], [0, A^T]] (Najfeld and Havel, 1995)."""

    def pullback(gradients: Gradients) -> Gradients:
        (matrix,) = site.operands
        size, name = shape_of(matrix)[-1], site.grad_name(0)
        turned = emitter.bind(relax.op.permute_dims(matrix, [0, 2, 1]), f"{name}_transposed")
        zeros = emitter.bind(relax.op.zeros_like(turned), f"{name}_zeros")
        above = emitter.bind(relax.op.concat([turned, gradients[0]], 2), f"{name}_above")
        below = emitter.bind(relax.op.concat([zeros, turned], 2), f"{name}_below")
        blocks = emitter.bind(relax.op.concat([above, below], 1), f"{name}_blocks")
        power = emitter.call(matrix_exp, [blocks], f"{name}_power")
        corner = relax.op.strided_slice(power, [1, 2], [0, size], [size, 2 * size])
        return (emitter.bind(corner, name),)

    return Linearized(_KERNELS["matrix_exp"].emitted(emitter, site), pullback)


def _value_and_change(_emitter: Emitter, site: Site) -> Linearized:
    """The value forwards, the gradient of the change backwards."""
    return Linearized((site.operands[0],), lambda gradients: (None, gradients[0]))


RULES: dict[str, Rule] = {
    **{PREFIX + name: _without_gradient(name) for name in _KERNELS},
    PREFIX + "lu_solve": _lu_solve,
    PREFIX + "matrix_exp": _matrix_exp,
    PREFIX + "solve_triangular": _solve_triangular,
    VALUE_AND_CHANGE: _value_and_change,
}
