"""Can this model's cache be rolled back? Asked once, when a model is loaded, of target and draft alike.

Recurrent and hybrid models fold the past into a state that cannot be cut at a position. They are
recognised by the kinds of layers that they name, and, whatever they name, by trying: read, crop, read
something else, and compare with a run of the model alone.
"""

import torch
from transformers import PreTrainedModel

from draftwise.core.errors import ModelError
from draftwise.models.eager import EagerRunner
from draftwise.models.masks import MASKABLE, layer_kinds
from draftwise.models.row import Row

_TOLERANCE = 0.1
"""Mean difference over the spread of the logits: bfloat16 stays under .03, a wrong cache is above .3."""

_HARMLESS = MASKABLE | {"dummy"}


def require_rollback(model: PreTrainedModel, name: str) -> None:
    """Raise ModelError, naming the kind, unless the model's cache can be advanced, cropped and reused."""
    config = model.config.get_text_config()
    stateful = sorted(set(layer_kinds(config)) - _HARMLESS)
    if stateful:
        raise ModelError(
            f"{name} is a {config.model_type} model with {', '.join(stateful)} layers: their state "
            "cannot be rolled back to a position, which speculative decoding needs; choose a model "
            "with attention layers only."
        )
    try:
        difference = _rollback_difference(model)
    except Exception as error:
        raise ModelError(
            f"{name} is a {config.model_type} model, which does not work with a cache that can be "
            f"rolled back ({type(error).__name__}: {error}); choose a model with attention layers only."
        ) from error
    if not difference < _TOLERANCE:
        raise ModelError(
            f"{name} is a {config.model_type} model, whose output changes after its cache was rolled "
            f"back (by {difference:.2g} of the spread of its logits): it keeps a recurrent state or "
            "positions of its own, and cannot be used here."
        )


def _rollback_difference(model: PreTrainedModel) -> float:
    """Largest mean difference between logits after a rollback and those of the model alone."""
    width = model.config.get_text_config().vocab_size
    text = [(7 * i * i + 3 * i + 1) % min(width, 251) for i in range(12)]
    with Row(EagerRunner(model)) as row:
        row.prefill([*text[:5], *reversed(text[5:9])])  # a wrong continuation, to be rolled back
        rolled_back = row.logits(text, 3).float()
    with torch.inference_mode():
        alone = model(input_ids=torch.tensor([text], device=model.device), use_cache=False)
    expected = alone.logits[0, -3:].float()
    difference = (rolled_back - expected).abs().mean(-1) / expected.std(-1)
    return float(difference.max())
