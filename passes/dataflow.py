"""Read and rebuild the one dataflow block of a function."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from tvm_xengine.errors import UnsupportedModuleError


def single_block(func: relax.Function) -> relax.DataflowBlock:
    """Return the only block of `func`, which must be a dataflow block.

    Raises
    ------
    UnsupportedModuleError
        When the body has another shape.
    """
    blocks = func.body.blocks if isinstance(func.body, relax.SeqExpr) else []
    if len(blocks) != 1 or not isinstance(blocks[0], relax.DataflowBlock):
        found = [type(block).__name__ for block in blocks]
        raise UnsupportedModuleError(
            f"expected a function of one dataflow block, found {found}; "
            "run relax.transform.ConvertToDataflow first"
        )
    return blocks[0]


def with_bindings(
    func: relax.Function,
    bindings: Sequence[relax.Binding],
    params: Sequence[relax.Var] | None = None,
) -> relax.Function:
    """Return `func` with other bindings in its block, and with other parameters unless None.

    The result's new expressions have no types until ``relax.transform.Normalize`` ran.
    """
    body = relax.SeqExpr([relax.DataflowBlock(list(bindings))], func.body.body)
    new_params = func.params if params is None else list(params)
    return relax.Function(new_params, body, func.ret_ty, func.is_pure, func.attrs)
