"""Reading weights through transformers: in silence, all of them, onto the device at once."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, cast

import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING
from transformers.utils import logging

from draftwise.core.errors import ModelError

_OTHER_HEADS = (
    "ForMaskedLM",
    "ForPreTraining",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where weights go and as what. spread: over all GPUs, the device being the first of them."""

    device: torch.device
    dtype: torch.dtype
    spread: bool = False

    @property
    def device_map(self) -> Any:
        """The placement in transformers' terms."""
        if self.spread:
            return "auto"
        return None if self.device.type == "cpu" else {"": self.device}


ON_CPU = Placement(torch.device("cpu"), torch.float32)
"""Exact, and at hand."""


def read_weights(
    name: str, folder: Path, config: PreTrainedConfig, placement: Placement, **options: Any
) -> PreTrainedModel:
    """The causal language model in `folder`; ModelError if any of its weights is missing."""
    loaded = AutoModelForCausalLM.from_pretrained(
        folder,
        config=config,
        dtype=placement.dtype,
        device_map=placement.device_map,
        trust_remote_code=False,
        local_files_only=True,
        output_loading_info=True,
        attn_implementation=_attention(config),
        **options,
    )
    model, report = cast("tuple[PreTrainedModel, dict[str, Any]]", loaded)
    require_whole(name, sorted(report["missing_keys"]), config)
    return model.requires_grad_(False)


def require_whole(name: str, missing: Sequence[str], config: PreTrainedConfig) -> None:
    """Raise ModelError if any weight is missing."""
    if missing:
        raise ModelError(
            f"{name} has no weights for {missing[0]} ({len(missing)} missing in all): it is not "
            f"the whole of a causal {config.model_type} model."
        )


def require_causal(config: PreTrainedConfig, name: str) -> None:
    """Raise ModelError, naming the kind, unless it is a decoder that writes the next token."""
    heads = config.architectures or []
    if config.is_encoder_decoder:
        kind = f"an encoder-decoder model ({config.model_type})"
    elif type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        kind = f"a {config.model_type} model"
    elif heads and all(head.endswith(_OTHER_HEADS) for head in heads):
        kind = f"a {heads[0]}"
    else:
        return
    raise ModelError(f"{name} is {kind}: choose a causal language model, one that writes on.")


def _attention(config: PreTrainedConfig) -> str:
    model_class = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    return "sdpa" if getattr(model_class, "_supports_sdpa", False) else "eager"


@contextmanager
def quiet() -> Iterator[None]:
    """Load in silence. The GGUF reader writes its bar straight to stderr: that is set aside too."""
    with transformers_silent(), redirect_stderr(StringIO()):
        yield


@contextmanager
def transformers_silent() -> Iterator[None]:
    """Neither warnings nor bars of transformers, for the time being."""
    bars, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def first_line(error: Exception) -> str:
    """What an error says, in its first line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
