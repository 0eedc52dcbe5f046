"""Can this model's cache be rolled back? Asked once, at load, of target and draft alike.

Recurrent and hybrid models fold the past into a state that cannot be cut at a position. They are
recognised by the kinds of layers that they name and, whatever they name, by trying: read, crop and
read something else, alone and beside another row, and compare with a run of the model alone.
"""

import torch
from transformers import PreTrainedModel

from draftwise.core.errors import ModelError
from draftwise.models.eager import EagerRunner
from draftwise.models.masks import MASKABLE, layer_kinds
from draftwise.models.runner import Read, Runner

_TOLERANCE, _HALF_TOLERANCE = 0.01, 0.1
"""Mean difference over the spread of the logits. float32 leaves 1e-6, bfloat16 up to .03; a wrong
cache has .3, positions that are a little off .03."""

_HARMLESS = MASKABLE | {"dummy"}

_TAKE_A_MASK = ("sdpa", "eager")
"""Attention implementations that take a mask as it is; flash and flex kernels do not."""


def require_rollback(model: PreTrainedModel, name: str) -> None:
    """Raise ModelError, naming the kind, unless the model's cache can be cropped and reused."""
    config = model.config.get_text_config()
    kind, attention = config.model_type, config._attn_implementation
    stateful = sorted(set(layer_kinds(config)) - _HARMLESS)
    if stateful:
        raise ModelError(
            f"{name} is a {kind} model with {', '.join(stateful)} layers, which cannot be rolled "
            "back to a position, as speculative decoding needs; choose a model whose layers are "
            "all full, sliding or chunked attention."
        )
    if attention not in _TAKE_A_MASK:
        raise ModelError(
            f"{name} uses {attention}, which takes no mask of the caller's; load it with "
            "attn_implementation='sdpa'."
        )
    if model.training:
        raise ModelError(f"{name} is in training mode, where dropout is random; call its eval().")
    try:
        difference = rollback_difference(EagerRunner(model), model)
    except Exception as error:
        raise ModelError(
            f"{name} is a {kind} model, which does not work with positions, masks and a cache of "
            f"the caller's ({type(error).__name__}: {error}); choose another."
        ) from error
    if not difference < (_HALF_TOLERANCE if model.dtype.itemsize < 4 else _TOLERANCE):
        raise ModelError(
            f"{name} is a {kind} model, whose output changes after a rollback or beside another "
            f"row (by {difference:.2g} of the spread of its logits): it keeps a recurrent state or "
            "counts positions by itself; choose another."
        )


def rollback_difference(runner: Runner, model: PreTrainedModel) -> float:
    """Largest mean difference between a runner's logits after a rollback and those of the model alone.

    In units of the spread of the logits. It takes two rows of the runner, and gives them back.
    """
    width = model.config.get_text_config().vocab_size
    text = [(7 * i * i + 3 * i + 1) % min(width, 251) for i in range(12)]
    wrong = [*text[:5], *reversed(text[5:9])]
    one, other = runner.add_row(), runner.add_row()
    runner.read([Read(one, wrong)])
    runner.crop(one, 5)
    got = runner.read([Read(one, text[5:], 3)])
    runner.crop(one, 7)
    got += runner.read([Read(one, text[7:], 3), Read(other, text, 3)])
    runner.remove_row(one)
    runner.remove_row(other)
    with torch.inference_mode():
        alone = model(input_ids=torch.tensor([text], device=model.device), use_cache=False)
    expected = alone.logits[0, -3:].float()
    spread = expected.std(-1).clamp(min=torch.finfo(torch.float32).tiny)  # flat logits have none
    return max(float(((each.logits - expected).abs().mean(-1) / spread).max()) for each in got)
