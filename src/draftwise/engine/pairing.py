"""Can these two models work as target and draft? Facts side by side, and a verdict.

Rows and vocabularies only: nothing is generated. What is an error stops a pair from being used; a
warning is something that its user should know.
"""

from dataclasses import dataclass

from draftwise.core.errors import PairingError
from draftwise.models.loading import LoadedModel
from draftwise.models.runner import Runner
from draftwise.text.vocabulary import VocabularyInfo, VocabularyVerdict, compare


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
class Pairing:
    """Two models, their vocabularies compared, and what follows from it all."""

    target: ModelFacts
    draft: ModelFacts
    vocabulary: VocabularyVerdict
    errors: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def usable(self) -> bool:
        """Whether the draft may draft for the target."""
        return not self.errors

    def require_usable(self) -> None:
        """Raise PairingError with the first error."""
        if self.errors:
            raise PairingError(self.errors[0])


def vocabulary_of(model: LoadedModel, runner: Runner) -> VocabularyInfo:
    """The vocabulary of a model: its tokenizer's strings and its logits' width."""
    tokenizer = model.tokenizer
    return VocabularyInfo(tokenizer.token_strings(), tokenizer.special_ids, runner.info.logit_width)


def pair(
    target: LoadedModel, target_runner: Runner, draft: LoadedModel, draft_runner: Runner
) -> Pairing:
    """Compare two loaded models."""
    ours, theirs = facts(target, target_runner), facts(draft, draft_runner)
    verdict = compare(vocabulary_of(target, target_runner), vocabulary_of(draft, draft_runner))
    errors, warnings = [], []
    if verdict.kind == "different":
        errors.append(
            f"{ours.name} and {theirs.name} have {verdict.summary}: a draft model must have the "
            "target's vocabulary, or use --draft lookup, which needs no model"
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
    return Pairing(ours, theirs, verdict, tuple(errors), tuple(warnings))


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
