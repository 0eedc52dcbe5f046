"""Loading: from a name, a path or objects to a model that is ready to run.

    target = load_model("smollm2-135m", dtype="float32")

A loaded model is in eval mode, asks for no gradients, and attends by sdpa or eager, since only
those take the explicit masks of the runner. Whatever is missing is one ModelError, raised before
the weights are read wherever that can be known.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import (
    AutoConfig,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from draftwise.core.errors import ModelError, OptionError
from draftwise.models.devices import pick_device, pick_dtype
from draftwise.models.gguf import load_gguf_model, load_gguf_tokenizer
from draftwise.models.sources import SourceKind, find_source
from draftwise.models.tokenizer import HFTokenizer
from draftwise.models.weights import Placement, first_line, quiet, read_weights, require_causal


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to run.

    end_ids: tokens that end its text, from every place that names any. context_length: positions
    that it was made for, None if it names no limit.
    """

    name: str
    model: PreTrainedModel
    tokenizer: HFTokenizer
    end_ids: frozenset[int]
    context_length: int | None
    source: SourceKind


def load_model(
    what: str | Path | tuple[PreTrainedModel, PreTrainedTokenizerBase],
    *,
    device: str = "auto",
    dtype: str = "auto",
    progress: bool = True,
) -> LoadedModel:
    """Load a built-in model, a folder, a GGUF file or a Hub name; or take (model, tokenizer).

    device, dtype: see `devices`; objects stay where and as they are. progress: whether a fetch
    shows on stderr how far it is.
    """
    if isinstance(what, tuple):
        return _take(*what, device=device, dtype=dtype)
    placement = _placement(device, dtype)
    name, source = str(what), find_source(what, progress)
    if source.kind == "gguf":
        tokenizer = load_gguf_tokenizer(source.path)
        model = load_gguf_model(source.path, placement)
    else:
        model, tokenizer = _from_folder(source.path, name, placement)
    return _loaded(name, model, tokenizer, source.kind)


def _placement(device: str, dtype: str) -> Placement:
    place = pick_device(device)
    several = place.type == "cuda" and torch.cuda.device_count() > 1
    return Placement(place, pick_dtype(dtype, place), spread=device == "auto" and several)


def _take(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, device: str, dtype: str
) -> LoadedModel:
    """Objects as they are, but for eval mode: they are the caller's."""
    name = model.config.name_or_path or type(model).__name__
    if model.config.is_encoder_decoder or not model.can_generate():
        raise ModelError(f"{name} is a {type(model).__name__}: choose a causal language model.")
    asked = model.device if device == "auto" else pick_device(device)
    if asked.type != model.device.type or asked.index not in (None, model.device.index):
        raise OptionError(f"{name} is loaded on {model.device}, not {device}: move it there first.")
    if dtype != "auto" and pick_dtype(dtype, model.device) != model.dtype:
        raise OptionError(f"{name} is loaded in {model.dtype}, not {dtype}: convert it first.")
    if model.config._attn_implementation not in ("sdpa", "eager"):
        raise ModelError(
            f"{name} attends by {model.config._attn_implementation}: load it with "
            'attn_implementation="sdpa" or "eager".'
        )
    return _loaded(name, model, tokenizer, "object")


def _loaded(
    name: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, source: SourceKind
) -> LoadedModel:
    end_ids = _end_ids(model, tokenizer)
    return LoadedModel(
        name=name,
        model=model.eval(),
        tokenizer=HFTokenizer(tokenizer, name, end_ids),
        end_ids=end_ids,
        context_length=context_length(model.config),
        source=source,
    )


def _from_folder(
    folder: Path, name: str, placement: Placement
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    with _told(name):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        require_causal(config, name)
    with _told(f"{name}'s tokenizer"):
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    with _told(name):
        return read_weights(name, folder, config, placement), tokenizer


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Whatever transformers and its parts raise, as one ModelError of one line."""
    try:
        with quiet():
            yield
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"{what} cannot be loaded: {first_line(error)}") from error


def _end_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """The union of what configuration, generation configuration and tokenizer name."""
    config = model.config.get_text_config()
    named = [
        holder.eos_token_id for holder in (config, model.generation_config, tokenizer) if holder
    ]
    ids = [i for ends in named for i in (ends if isinstance(ends, list) else [ends])]
    return frozenset(i for i in ids if isinstance(i, int) and 0 <= i < config.vocab_size)


def context_length(config: PreTrainedConfig) -> int | None:
    """Positions that the model was made for, with rotary positions stretched as it says.

    Most configurations give the stretched length; those that turn yarn on by hand (Qwen2.5) give
    the original one and a factor. None where positions are not limited (ALiBi).
    """
    config = config.get_text_config()
    length = getattr(config, "max_position_embeddings", None)
    if length is None:
        return getattr(config, "max_seq_len", None)
    rope = getattr(config, "rope_parameters", None) or {}
    scalings = [value for value in rope.values() if isinstance(value, dict)] or [rope]
    stretched = [
        int(scaling["factor"] * scaling["original_max_position_embeddings"])
        for scaling in scalings
        if scaling.get("rope_type") == "yarn" and scaling.get("factor")
    ]
    return max(length, *stretched) if stretched else length
