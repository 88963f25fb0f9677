"""The prior of a model, without what labels taught: what a processor without labels would get."""

from __future__ import annotations

from dataclasses import replace

from tvm_xengine.cost_models.models.adapted_predictor import AdaptedPredictor, Corrections
from tvm_xengine.cost_models.models.cold_calls import ColdCalls
from tvm_xengine.cost_models.models.model_file import ModelFile


def unadapted(model: ModelFile) -> ModelFile:
    """The same model as if the labels had never been: every processor but the prior's is foreign to it."""
    predictor = model.predictor
    if not isinstance(predictor, AdaptedPredictor):
        return model
    prior = predictor.prior
    bare = AdaptedPredictor(
        prior=prior,
        prior_digest=predictor.prior_digest,
        feature_set=prior.feature_set,
        feature_names=prior.feature_names,
        shared=Corrections((), (), (0.0, 0.0), (0.0, 0.0), ColdCalls(0.0, 0.0)),
        disagreement_floor=prior.disagreement_floor,
        widths=prior.widths,
        smearing=prior.smearing,
    )
    card = {**model.card, "targets": model.card.get("prior_targets", {})}
    return replace(model, predictor=bare, card=card)
