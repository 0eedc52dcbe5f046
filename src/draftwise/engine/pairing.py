"""Can these two models work as target and draft? Facts side by side, and a verdict.

Rows and vocabularies only: nothing is generated. Two vocabularies may differ, and then what they share
decides how much the draft can say. An error stops a pair from being of use; a warning is something that
its user should know.
"""

from dataclasses import dataclass

from draftwise.drafters.translation import Dictionary
from draftwise.models.loading import LoadedModel
from draftwise.models.runner import Runner
from draftwise.text.overlap import boundaries_met
from draftwise.text.vocabulary import VocabularyInfo, VocabularyVerdict, compare

SAMPLE = """The ferry leaves at 7:45 in the morning, and there is room for 120 cars.

def mean(values):
    total = sum(values)  # may be a generator
    return total / len(values)

{"name": "Zürich", "population": 443037, "tags": ["lake", "city"]}
"""
"""Prose, code and data, to see where two tokenizers cut alike."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What `check` shows of one model."""

    name: str
    kind: str
    real_size: int
    embedding_rows: int
    largest_id: int
    context_length: int | None
    end_tokens: tuple[str, ...]
    chat_template: bool
    device: str
    dtype: str
    cache_kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sharing:
    """What two different vocabularies have in common.

    shared, total, share: tokens of the draft that the target has too, all that stand for text, and the
    ratio of the two.
    boundaries: of the places in a sample text where a token of the target ends, the share where one
    of the draft does too.
    """

    shared: int
    total: int
    share: float
    boundaries: float


@dataclass(frozen=True, slots=True)
class Pairing:
    """Two models, their vocabularies compared, and what follows from it all.

    sharing: None where the vocabulary is the same.
    """

    target: ModelFacts
    draft: ModelFacts
    vocabulary: VocabularyVerdict
    sharing: Sharing | None
    errors: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def usable(self) -> bool:
        """Whether the draft can draft for the target at all."""
        return not self.errors


def vocabulary_of(model: LoadedModel, runner: Runner) -> VocabularyInfo:
    """The vocabulary of a model: its tokenizer's strings and its logits' width."""
    tokenizer = model.tokenizer
    return VocabularyInfo(tokenizer.token_strings(), tokenizer.special_ids, runner.info.logit_width)


def pair(
    target: LoadedModel,
    target_runner: Runner,
    draft: LoadedModel,
    draft_runner: Runner,
    foreign: str = "intersection",
) -> Pairing:
    """Compare two loaded models; foreign: how the draft is to draft if its vocabulary is another."""
    ours, theirs = facts(target, target_runner), facts(draft, draft_runner)
    verdict = compare(vocabulary_of(target, target_runner), vocabulary_of(draft, draft_runner))
    sizes = ours.real_size, theirs.real_size
    sharing = None if verdict.kind != "different" else share(target, draft, sizes)
    errors, warnings = [], []
    if sharing is not None and not sharing.shared and foreign == "intersection":
        errors.append(
            f"{ours.name} and {theirs.name} have no token in common: nothing can be drafted by "
            "intersection (--foreign string may do)"
        )
    if theirs.context_length and (
        not ours.context_length or theirs.context_length < ours.context_length
    ):
        warnings.append(
            f"the draft's context ends at {theirs.context_length} tokens, the target's at "
            f"{ours.context_length or 'no limit'}: beyond the draft's, speculation pauses"
        )
    if set(ours.end_tokens) != set(theirs.end_tokens):
        warnings.append(
            f"end tokens differ ({_listed(ours.end_tokens)} against {_listed(theirs.end_tokens)}): "
            "the target's count"
        )
    if ours.device != theirs.device:
        warnings.append(
            f"target on {ours.device}, draft on {theirs.device}: tokens cross between them"
        )
    return Pairing(ours, theirs, verdict, sharing, tuple(errors), tuple(warnings))


def share(target: LoadedModel, draft: LoadedModel, sizes: tuple[int, int]) -> Sharing:
    """Compare the tokens of two vocabularies, and how they cut a sample text."""
    dictionary = Dictionary(target.tokenizer, draft.tokenizer, *sizes)
    common, spellings = dictionary.overlap, (dictionary.target, dictionary.draft)
    cuts = [[s.join([i]) for i in s.continuation(SAMPLE)] for s in spellings]
    return Sharing(len(common.to_draft), common.total, common.share, boundaries_met(*cuts))


def facts(model: LoadedModel, runner: Runner) -> ModelFacts:
    """Gather what is shown of one model."""
    vocabulary, strings = vocabulary_of(model, runner), model.tokenizer.token_strings()
    return ModelFacts(
        name=model.name,
        kind=model.model.config.get_text_config().model_type,
        real_size=vocabulary.size,
        embedding_rows=vocabulary.embedding_rows,
        largest_id=vocabulary.largest_id,
        context_length=runner.info.context_length,
        end_tokens=tuple(strings[i] or str(i) for i in sorted(model.end_ids) if i < len(strings)),
        chat_template=model.tokenizer.has_chat_template,
        device=str(runner.info.device),
        dtype=str(runner.info.dtype).removeprefix("torch."),
        cache_kinds=runner.info.cache_kinds,
    )


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "none"
