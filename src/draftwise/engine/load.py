"""From names to an engine: load the models, check that they fit, choose the drafter."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from draftwise.core.errors import OptionError
from draftwise.drafters.drafter import Drafter
from draftwise.drafters.lookup import PromptLookup
from draftwise.drafters.mixed import Mixed
from draftwise.drafters.model import DraftModel, DraftOrigin
from draftwise.drafters.none import NoDraft
from draftwise.drafters.strings import StringDraft
from draftwise.drafters.suffix import SuffixDrafter
from draftwise.drafters.translation import Dictionary
from draftwise.engine.calibration import calibrate
from draftwise.engine.engine import Engine
from draftwise.engine.options import (
    DEFAULT_TARGET,
    ITS_DRAFT,
    MIXED,
    OTHERWISE,
    ModelOptions,
    make,
)
from draftwise.engine.pairing import Pairing, pair, vocabulary_of
from draftwise.engine.runners import open_runner
from draftwise.engine.settings import draft_settings, target_settings
from draftwise.models.devices import lend_threads, set_threads
from draftwise.models.loading import LoadedModel, load_model
from draftwise.models.runner import Runner
from draftwise.text.vocabulary import compare

MODEL_FREE = {"lookup": PromptLookup, "suffix": SuffixDrafter, "none": NoDraft}
"""Drafters that are named and need no model. Beside them: self, any name of a model, and mixed:MODEL."""


def load(
    target: Any = None, draft: Any = None, options: ModelOptions | None = None, **named: Any
) -> Engine:
    """Load an engine. Options are given as ModelOptions, or its fields by name.

    target: a built-in or Hub name, a folder, a GGUF file, or a (model, tokenizer) pair of transformers
    objects. draft: the same, or "suffix", "lookup", "mixed:MODEL", "self", "none", or a drafter of your own.
    """
    paths = {
        name: str(value)
        for name, value in (("target", target), ("draft", draft))
        if isinstance(value, str | Path)
    }
    chosen = make(ModelOptions, named | paths, options)
    by_name = target is None or "target" in paths
    loaded, runner = load_runner(chosen.target if by_name else target, chosen)
    usual = chosen.drafter if by_name else OTHERWISE
    drafter = load_drafter(usual if draft is None else draft, loaded, runner, chosen)
    return Engine(
        loaded, runner, drafter, target_settings(loaded, runner) | draft_settings(drafter)
    )


def load_runner(
    model: Any, options: ModelOptions, lends: bool = True, guesses: bool = False
) -> tuple[LoadedModel, Runner]:
    """Load a model and put it behind a runner.

    lends: whether torch leaves its threads to a runner that does not need them. guesses: whether it only
    drafts, and may be rounded.
    """
    threads = set_threads(options.threads)
    loaded = load_model(model, device=options.device, dtype=options.dtype)
    runner = open_runner(loaded, options.runner, options.weights, threads, guesses)
    if runner.info.name != "eager" and lends:
        lend_threads()
    return loaded, runner


def load_draft_runner(
    model: Any, options: ModelOptions, lends: bool = True
) -> tuple[LoadedModel, Runner]:
    """The same for a draft model, where and how it is asked to run if not as the target does."""
    own = replace(
        options,
        device=options.draft_device or options.device,
        dtype=options.draft_dtype or options.dtype,
        runner=options.draft_runner or options.runner,
        weights=options.draft_weights or "auto",
    )
    return load_runner(model, own, lends, guesses=True)


def check_pair(options: ModelOptions) -> Pairing:
    """Load both models and compare them, whatever comes of it."""
    drafter = options.drafter.removeprefix(f"{MIXED}:")
    if drafter in (*MODEL_FREE, "self", MIXED):
        raise OptionError(
            f"--draft {drafter} needs no check: it works with every target; name a model"
        )
    target, draft = (
        load_runner(options.target, options),
        load_draft_runner(drafter, options),
    )
    return pair(*target, *draft, foreign=options.foreign)


def _refuse_what_no_model_takes(draft: object, options: ModelOptions) -> None:
    for name in ("draft_device", "draft_dtype", "draft_runner", "draft_weights"):
        if getattr(options, name) is not None:
            raise OptionError(f"{name} is for a draft model, and {draft} is none: leave it out")


def load_drafter(draft: Any, target: LoadedModel, runner: Runner, options: ModelOptions) -> Drafter:
    """The drafter of a name, or of objects, for a target that is loaded."""
    if isinstance(draft, str) and draft in (*MODEL_FREE, "self"):
        _refuse_what_no_model_takes(draft, options)
        if draft == "self":
            return DraftModel(runner, "self", origin=DraftOrigin(target.source), adapts=False)
        return MODEL_FREE[draft]()
    if isinstance(draft, str) and _names_mixed(draft):
        return _mixed(draft, target, runner, options)
    if not isinstance(draft, str | Path | tuple):
        return draft
    model, draft_runner = load_draft_runner(draft, options, runner.info.name != "eager")
    ours, theirs = vocabulary_of(target, runner), vocabulary_of(model, draft_runner)
    origin = DraftOrigin(model.source, compare(ours, theirs).kind)
    if origin.vocabulary != "different":
        return DraftModel(draft_runner, model.name, origin=origin)
    dictionary = Dictionary(target.tokenizer, model.tokenizer, ours.size, theirs.size)
    kind = StringDraft if options.foreign == "string" else DraftModel
    return kind(draft_runner, model.name, dictionary, origin)


def _names_mixed(draft: str) -> bool:
    return draft == MIXED or draft.startswith(f"{MIXED}:")


def _mixed(draft: str, target: LoadedModel, runner: Runner, options: ModelOptions) -> Mixed:
    """Copies from earlier text, or the model that is named behind the colon: mixed:MODEL."""
    name = draft.partition(":")[2]
    if not name and target.name != DEFAULT_TARGET:
        raise OptionError(
            f"--draft {MIXED} needs a draft model: write {MIXED}:MODEL, such as {MIXED}:{ITS_DRAFT}"
        )
    model = load_drafter(name or ITS_DRAFT, target, runner, options)
    if not isinstance(model, DraftModel | StringDraft):
        raise OptionError(f"--draft {draft} names no model behind the colon")
    return Mixed.of(model, calibrate(target, runner, model))
