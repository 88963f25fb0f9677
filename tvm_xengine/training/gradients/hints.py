"""Hints in a model: identities, which pass gradients through."""

from __future__ import annotations

from tvm_xengine.relax_ir.hints import HINTS
from tvm_xengine.training.emitter import Emitter
from tvm_xengine.training.rule import Linearized, Rule, Site


def _hint(emitter: Emitter, site: Site) -> Linearized:
    return Linearized(site.emit(emitter), lambda gradients: gradients)


RULES: dict[str, Rule] = dict.fromkeys(HINTS, _hint)
