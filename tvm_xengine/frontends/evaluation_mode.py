"""Models that are trained as they are used: batch norms keep their statistics, nothing is dropped."""

from __future__ import annotations

from dataclasses import replace

from tvm import relax

from tvm_xengine.frontends.assemble import without_writes
from tvm_xengine.frontends.model import ForwardModel
from tvm_xengine.relax_ir.batch_norms import BATCH_NORM

DROPOUT = "relax.nn.dropout"


def in_evaluation_mode(model: ForwardModel) -> ForwardModel:
    """`model` with batch norms and dropout in inference mode, as after ``model.eval()`` in PyTorch.

    Running statistics and other buffers that are written become constants; scale and shift of the
    norms are trained as before.
    """
    model = without_writes(model)
    frozen = _InEvaluationMode()
    mod = model.mod.clone()
    mod["main"] = frozen.visit_expr(model.main).with_attrs(dict(model.main.attrs or {}))
    constants = {**model.statistics, **model.constants}
    return replace(model, mod=mod, statistics={}, constants=constants, counters={})


@relax.expr_functor.mutator
class _InEvaluationMode(relax.PyExprMutator):  # type: ignore[misc]
    """Turns off the training mode of each batch norm, and leaves dropout out."""

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        name = getattr(call.op, "name", "")
        if name == DROPOUT:
            return relax.Tuple([call.args[0], call.args[0]])  # nothing reads the mask
        if name != BATCH_NORM or not bool(call.attrs.training):
            return call
        attrs = call.attrs
        return relax.op.nn.batch_norm(
            *call.args,
            axis=int(attrs.axis),
            epsilon=float(attrs.epsilon),
            center=bool(attrs.center),
            scale=bool(attrs.scale),
            momentum=float(attrs.momentum),
            training=False,
        )
