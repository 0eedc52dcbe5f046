"""From what a user gives, text and options, to a `Request` in token ids. Nothing runs here."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from draftwise.core.errors import OptionError, PromptError
from draftwise.core.lookahead import LONGEST, Lookahead
from draftwise.core.noise import fresh_seed
from draftwise.core.processors import Processor
from draftwise.core.sampling import Sampler
from draftwise.core.stopping import StopConditions
from draftwise.decoding.evidence import NUM_LEADING
from draftwise.decoding.generation import Request
from draftwise.engine.options import AUTO, GenerateOptions
from draftwise.models.loading import LoadedModel
from draftwise.text.spelling import Spelling
from draftwise.text.tokenizer import Message

Prompt = str | Sequence[Message] | Sequence[int]
"""Text, the messages of a chat, or token ids."""


class RequestMaker:
    """Makes requests for one target. vocab_size: ids that it may write."""

    def __init__(self, target: LoadedModel, vocab_size: int, context_length: int | None) -> None:
        self._target = target
        self._vocab_size = vocab_size
        self._context_length = context_length
        self._spelling = Spelling(target.tokenizer)

    def make(
        self,
        prompt: Prompt,
        options: GenerateOptions,
        *,
        usual_k: int,
        adapts: bool,
        lookahead: Callable[[int], Lookahead],
        processors: Sequence[Processor] = (),
        keep_evidence: bool = False,
    ) -> Request:
        """Settle a request. Raises PromptError or OptionError.

        usual_k, adapts: of the drafter. lookahead: makes, for a prompt of so many tokens, what chooses k
        where the options say auto, or where they say nothing, the drafter adapts and the rule is match:
        by another, a seed repeats a text at a fixed k alone.
        keep_evidence: for a proof.
        """
        tokenizer, k = self._target.tokenizer, options.k
        if k is None:
            k = AUTO if adapts and options.rule == "match" else usual_k
        if k == AUTO and usual_k == 0:
            k = 0  # a drafter that proposes nothing
        end_ids = frozenset() if options.ignore_eos else self._target.end_ids
        stop_ids = frozenset(options.stop_ids)
        for i in stop_ids:
            if not 0 <= i < self._vocab_size:
                raise OptionError(f"stop_ids has {i}: ids go from 0 to {self._vocab_size - 1}")
        banned = tuple(ids for word in options.banned_words for ids in self._spellings(word))
        prompt_ids = tuple(self._ids(prompt, options.raw))
        return Request(
            prompt=prompt_ids,
            sampler=Sampler(
                replace(options.sampling, banned_words=banned),
                vocab_size=self._vocab_size,
                end_ids=end_ids | stop_ids,
                processors=processors,
            ),
            stop=StopConditions(
                end_ids=end_ids,
                stop_ids=stop_ids,
                stop_strings=options.stop,
                max_tokens=options.tokens,
                min_tokens=options.min_tokens,
            ),
            decode=tokenizer.decode,
            skipped=tokenizer.special_ids,
            goes_on=options.raw,
            seed=fresh_seed() if options.seed is None else options.seed,
            k=LONGEST if isinstance(k, str) else k,
            lookahead=partial(lookahead, len(prompt_ids)) if isinstance(k, str) else None,
            rule=options.rule,
            context_length=self._context_length,
            num_leading=NUM_LEADING if keep_evidence else 0,
        )

    def _ids(self, prompt: Prompt, raw: bool) -> list[int]:
        tokenizer = self._target.tokenizer
        if isinstance(prompt, str):
            _require_text(prompt)
            if raw or not tokenizer.has_chat_template:
                return tokenizer.encode(prompt)
            return tokenizer.chat([Message("user", prompt)])
        parts = list(prompt) if isinstance(prompt, Sequence) else [None]
        messages = [part for part in parts if isinstance(part, Message)]
        if messages and len(messages) == len(parts):
            if raw:
                raise OptionError("raw takes text; messages need the chat template: leave it out")
            for message in messages:
                _require_text(message.content)
            return tokenizer.chat(messages)
        ids = [part for part in parts if isinstance(part, int) and not isinstance(part, bool)]
        if len(ids) < len(parts) or not all(0 <= i < self._vocab_size for i in ids):
            raise PromptError(
                f"a prompt is text, messages, or token ids from 0 to {self._vocab_size - 1}"
            )
        return ids

    def _spellings(self, word: str) -> list[tuple[int, ...]]:
        """Token sequences of a banned word: on its own, and behind a space."""
        if not word:
            raise OptionError("a banned word is empty: leave it out")
        return [tuple(self._spelling.continuation(text)) for text in (word, f" {word}")]


def _require_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PromptError(f"the prompt is no valid text at character {error.start}") from error
