"""From logits to the distribution that a token is drawn from.

The order is: processors, temperature, top-k, top-p, min-p, softmax; float32, or float64 where the
logits are float64. Temperature 0 takes the same path and ends in `OneHot`. Everything here is a
pure function of logits, history and options; nothing is drawn.

    sampler = Sampler(SamplingOptions(temperature=0.8, top_p=0.9), vocab_size=32_000)
    state = sampler.start(prompt)
    p = state.distribution(state.processed(logits, draft_tokens))
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import log
from numbers import Integral

import torch
from torch import Tensor

from draftwise.core.distributions import Dense, Distribution, OneHot
from draftwise.core.errors import ModelError, OptionError
from draftwise.core.processors import (
    BannedWords,
    FrequencyPenalty,
    LogitBias,
    MinTokens,
    NoRepeatNgram,
    PresencePenalty,
    Processor,
    RepetitionPenalty,
)


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """Every option that changes the distribution of the next token; the defaults change nothing.

    temperature: 0 is greedy (the filters below then have nothing to do).
    top_k: keep the k most likely tokens; 0 is off.
    top_p: keep the smallest set of most likely tokens whose mass reaches top_p; 1 is off.
    min_p: keep tokens at least min_p times as likely as the most likely one; 0 is off.
    repetition_penalty: counts prompt and output; 1 is off.
    presence_penalty, frequency_penalty: count the output only; 0 is off.
    logit_bias: (id, value) pairs, or a mapping, which is turned into pairs; -inf bans a token.
    banned_words: token sequences that are never completed.
    no_repeat_ngram: no sequence of so many tokens occurs twice; 0 is off.
    min_tokens: no end token before so many tokens were generated.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | tuple[tuple[int, float], ...] = ()
    banned_words: tuple[tuple[int, ...], ...] = ()
    no_repeat_ngram: int = 0
    min_tokens: int = 0

    def __post_init__(self) -> None:
        pairs = self.logit_bias.items() if isinstance(self.logit_bias, Mapping) else self.logit_bias
        object.__setattr__(self, "logit_bias", tuple((id_, value) for id_, value in pairs))
        object.__setattr__(self, "banned_words", tuple(tuple(word) for word in self.banned_words))
        for name, low, high in (
            ("temperature", 0, 1e6),
            ("top_p", 0, 1),
            ("min_p", 0, 1),
            ("repetition_penalty", 0.01, 100),
            ("presence_penalty", -2, 2),
            ("frequency_penalty", -2, 2),
        ):
            value = getattr(self, name)
            _require(_is_number(value, low, high), name, value, f"from {low} to {high:g}")
        tiny = 0 < self.temperature < 1e-6
        _require(not tiny, "temperature", self.temperature, "0 (greedy) or at least 1e-6")
        _require(self.top_p > 0, "top_p", self.top_p, "above 0 and at most 1")
        for name in ("top_k", "no_repeat_ngram", "min_tokens"):
            value = getattr(self, name)
            _require(_is_count(value), name, value, "a whole number, 0 (off) or more")
        self._check_tokens()

    def _check_tokens(self) -> None:
        bias = dict(self.logit_bias)
        once = len(bias) == len(self.logit_bias)
        _require(once, "logit_bias", self.logit_bias, "one value for each id")
        for id_, value in bias.items():
            _require(_is_count(id_), "an id in logit_bias", id_, "a whole number, 0 or more")
            allowed = value == -torch.inf or _is_number(value, -1000, 1000)
            _require(allowed, f"logit_bias of {id_}", value, "from -1000 to 1000, or -inf")
        for word in self.banned_words:
            _require(len(word) > 0, "each of banned_words", word, "at least one token id")
            for id_ in word:
                _require(_is_count(id_), "an id in banned_words", id_, "a whole number, 0 or more")


class Sampler:
    """Options made ready for one vocabulary: the list of processors that are on, in order.

    The order is that of transformers' generate: logit bias, repetition penalty, then the two
    penalties that it lacks (frequency, presence), n-grams, banned words, minimum tokens; a user's
    own come last. vocab_size is the tokenizer's real size: what a model has beyond it is padding.
    """

    def __init__(
        self,
        options: SamplingOptions,
        *,
        vocab_size: int,
        end_ids: Collection[int] = (),
        processors: Sequence[Processor] = (),
    ) -> None:
        for name, ids in (
            ("logit_bias", dict(options.logit_bias)),
            ("banned_words", [id_ for word in options.banned_words for id_ in word]),
        ):
            largest = max(ids, default=0)
            allowed = f"in the vocabulary (0 to {vocab_size - 1})"
            _require(largest < vocab_size, f"each id in {name}", largest, allowed)
        self.options = options
        self.vocab_size = vocab_size
        self.processors: tuple[Processor, ...] = (*_active(options, tuple(end_ids)), *processors)

    def start(self, prompt: Sequence[int]) -> "SamplingState":
        """The state after the prompt."""
        return SamplingState(self, tuple(each.start(prompt) for each in self.processors))


@dataclass(frozen=True, slots=True, eq=False)
class SamplingState:
    """What sampling knows of one sequence: a value, which can be advanced along any branch."""

    sampler: Sampler
    states: tuple[object, ...]

    def advance(self, token: int) -> "SamplingState":
        """The state after one more token; this one stays as it is."""
        pairs = zip(self.sampler.processors, self.states, strict=True)
        return SamplingState(
            self.sampler, tuple(each.advance(state, token) for each, state in pairs)
        )

    def processed(self, logits: Tensor, draft_tokens: Sequence[int] = ()) -> Tensor:
        """Processed logits [n, vocab_size]: row i in the light of this state and draft_tokens[:i].

        logits: [n, width], n at most len(draft_tokens) + 1, width at least vocab_size, unmodified.
        Row 0 is always used, so it is checked here (on a GPU with processors only, since a check
        waits for the device). Which later rows are used is known after the verdict: a caller then
        hands those to `require_choice`, lest a draft that is rejected anyway stop the request.
        """
        vocab_size = self.sampler.vocab_size
        n, width = logits.shape
        if n > len(draft_tokens) + 1 or width < vocab_size:
            raise ValueError(
                f"logits of shape {n} x {width} for {len(draft_tokens)} draft tokens "
                f"and a vocabulary of {vocab_size}"
            )
        rows = logits[:, :vocab_size]
        rows = rows if rows.dtype == torch.float64 else rows.float()
        if self.sampler.processors:
            prefixes = accumulate(draft_tokens, SamplingState.advance, initial=self)
            rows = torch.stack(
                [state._apply(row) for row, state in zip(rows, prefixes, strict=False)]
            )
        if self.sampler.processors or rows.device.type == "cpu":
            require_choice(rows[:1])
        return rows

    def distribution(self, processed: Tensor) -> Distribution:
        """The distribution of each processed row; at temperature 0 the lowest id wins a tie."""
        if self.sampler.options.temperature == 0:
            return OneHot(processed.argmax(-1))
        return Dense(filtered_probabilities(processed, self.sampler.options))

    def _apply(self, logits: Tensor) -> Tensor:
        for processor, state in zip(self.sampler.processors, self.states, strict=True):
            logits = processor.apply(state, logits)
        return logits


def require_choice(processed: Tensor) -> None:
    """Raise unless each row of processed logits has a finite maximum: a token to choose."""
    highest = processed.amax(-1)
    if bool(highest.isfinite().all()):
        return
    if bool((highest == -torch.inf).any()):
        raise OptionError(
            "The options leave no token to choose at this position: loosen logit_bias, "
            "banned_words, no_repeat_ngram, min_tokens or your own processors."
        )
    raise ModelError(
        "The logits are infinite or not a number: load the model with --dtype float32, "
        "or check your own processors."
    )


def filtered_probabilities(logits: Tensor, options: SamplingOptions) -> Tensor:
    """Probabilities [n, vocab] of processed logits, at a temperature above 0.

    Each filter is a threshold on the logits, and a row keeps what reaches the highest of them. So
    tokens that tie at an edge stay or go together: the choice depends on values alone, never on ids
    or on how a device sorts, and the most likely token always stays. transformers does the same for
    top-k and min-p; at the edge of top-p its sort picks among equals. A row that `require_choice`
    would refuse comes out as zeros: no rule accepts a token there.
    """
    if options.temperature == 0:
        raise ValueError("temperature 0 has no softmax: take the arg-max")
    scaled = logits / options.temperature
    if options.top_k:
        leading = scaled.topk(min(options.top_k, scaled.shape[-1])).values
        scaled = _at_least(leading[:, -1:], scaled)
    if options.top_p < 1:
        scaled = _at_least(_top_p_edge(scaled, options), scaled)
    if options.min_p > 0:
        scaled = _at_least(scaled.amax(-1, keepdim=True) + log(options.min_p), scaled)
    return scaled.softmax(-1).nan_to_num_(nan=0.0)


def _at_least(edge: Tensor, scaled: Tensor) -> Tensor:
    return torch.where(scaled >= edge, scaled, -torch.inf)


def _top_p_edge(scaled: Tensor, options: SamplingOptions) -> Tensor:
    """The logit [n, 1] of the last token that top-p keeps: where the mass first reaches top_p."""
    vocab_size = scaled.shape[-1]
    p = scaled.softmax(-1)
    # A full sort of a large vocabulary costs a CPU more than the target's pass, and the leading few
    # tokens nearly always hold the mass. Elsewhere sorting is cheap, and looking would wait for it.
    count = options.top_k or (256 if scaled.device.type == "cpu" else vocab_size)
    while True:
        leading, ids = scaled.topk(min(count, vocab_size))
        mass = p.gather(-1, ids).cumsum(-1)
        if options.top_k or count >= vocab_size or bool((mass[:, -1] >= options.top_p).all()):
            break
        count *= 16
    last = (mass < options.top_p).sum(-1, keepdim=True).clamp(max=leading.shape[-1] - 1)
    return leading.gather(-1, last)


def _active(options: SamplingOptions, end_ids: tuple[int, ...]) -> list[Processor]:
    candidates: list[tuple[bool, Processor]] = [
        (bool(options.logit_bias), LogitBias(dict(options.logit_bias))),
        (options.repetition_penalty != 1, RepetitionPenalty(options.repetition_penalty)),
        (options.frequency_penalty != 0, FrequencyPenalty(options.frequency_penalty)),
        (options.presence_penalty != 0, PresencePenalty(options.presence_penalty)),
        (options.no_repeat_ngram > 0, NoRepeatNgram(options.no_repeat_ngram)),
        (bool(options.banned_words), BannedWords(options.banned_words)),
        (options.min_tokens > 0, MinTokens(options.min_tokens, end_ids)),
    ]
    return [processor for on, processor in candidates if on]


def _require(holds: bool, name: str, value: object, allowed: str) -> None:
    if not holds:
        raise OptionError(f"{name} must be {allowed}, not {value!r}.")


def _is_number(value: object, low: float, high: float) -> bool:
    # Comparing with the bounds refuses NaN and infinities too.
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def _is_count(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 0
