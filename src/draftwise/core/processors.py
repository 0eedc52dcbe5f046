"""Processors change the logits of one position in the light of the tokens before it.

A processor is three pure functions: `start` reads the prompt, `advance` reads one more token,
`apply` returns the changed logits. States are values that nobody modifies, so any state can be
advanced along several branches, and a rejected draft leaves no trace. The formulas are those of
transformers, and for the presence and frequency penalties those of OpenAI's API. Histories are
int64 tensors on the CPU; ids in them that have no logit (an image token, say) are passed over.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import torch
from torch import Tensor

S = TypeVar("S")


class Processor(Protocol[S]):
    """What changes the logits of a position; S is the type of its state."""

    def start(self, prompt: Sequence[int]) -> S:
        """The state after the prompt, before any generated token."""
        ...

    def advance(self, state: S, token: int) -> S:
        """The state after one more generated token; `state` itself stays as it is."""
        ...

    def apply(self, state: S, logits: Tensor) -> Tensor:
        """The changed logits [vocab]; never writes into `logits`, may return it unchanged."""
        ...


@dataclass(frozen=True, slots=True)
class RepetitionPenalty:
    """Makes tokens of the prompt and the output less likely: logits below 0 x penalty, others / it.

    Keskar et al. 2019 (arXiv 1909.05858), section 4.1, in the form that transformers gave it.
    """

    penalty: float

    def start(self, prompt: Sequence[int]) -> Tensor:
        """The distinct tokens of the prompt."""
        return _history(prompt).unique()

    def advance(self, state: Tensor, token: int) -> Tensor:
        """A repeated token may stand in the state twice: `apply` writes the same value twice."""
        return _append(state, token)

    def apply(self, state: Tensor, logits: Tensor) -> Tensor:
        """Penalise the logits of all tokens seen."""
        ids = _with_logit(state, logits)
        seen = logits[ids]
        penalised = torch.where(seen < 0, seen * self.penalty, seen / self.penalty)
        return logits.scatter(0, ids, penalised)


@dataclass(frozen=True, slots=True)
class PresencePenalty:
    """Subtracts the penalty once from every token generated so far; the prompt does not count."""

    penalty: float

    def start(self, prompt: Sequence[int]) -> Tensor:
        """Nothing is generated yet."""
        return _history(())

    def advance(self, state: Tensor, token: int) -> Tensor:
        """The generated tokens with one more."""
        return _append(state, token)

    def apply(self, state: Tensor, logits: Tensor) -> Tensor:
        """Logits - penalty * (count > 0)."""
        return logits - self.penalty * (_counts(state, logits) > 0)


@dataclass(frozen=True, slots=True)
class FrequencyPenalty:
    """Subtracts the penalty for each time that a token was generated; the prompt does not count."""

    penalty: float

    def start(self, prompt: Sequence[int]) -> Tensor:
        """Nothing is generated yet."""
        return _history(())

    def advance(self, state: Tensor, token: int) -> Tensor:
        """The generated tokens with one more."""
        return _append(state, token)

    def apply(self, state: Tensor, logits: Tensor) -> Tensor:
        """Logits - penalty * count."""
        return logits - self.penalty * _counts(state, logits)


@dataclass(frozen=True, slots=True)
class LogitBias:
    """Adds a value to the logits of chosen tokens; minus infinity bans a token."""

    bias: Mapping[int, float]

    def start(self, prompt: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Ids and values as tensors, made once a request."""
        values = torch.tensor(tuple(self.bias.values()), dtype=torch.float64)
        return _history(tuple(self.bias)), values

    def advance(
        self,
        state: tuple[Tensor, Tensor],
        token: int,
    ) -> tuple[Tensor, Tensor]:
        """No token changes a bias."""
        return state

    def apply(self, state: tuple[Tensor, Tensor], logits: Tensor) -> Tensor:
        """Logits + bias."""
        ids, values = state
        return logits.index_add(0, ids.to(logits.device), values.to(logits))


@dataclass(frozen=True, slots=True)
class BannedWords:
    """Never lets one of these token sequences be completed.

    A word of one token is always banned; a longer one bans its last token where the tokens before
    it have just been written, in the prompt too.
    """

    words: tuple[tuple[int, ...], ...]
    _endings: Mapping[tuple[int, ...], list[int]] = field(init=False, repr=False, compare=False)
    _lengths: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        endings: dict[tuple[int, ...], list[int]] = {}
        for *beginning, last in self.words:
            endings.setdefault(tuple(beginning), []).append(last)
        object.__setattr__(self, "_endings", endings)
        object.__setattr__(self, "_lengths", tuple(sorted({len(each) for each in endings})))

    def start(self, prompt: Sequence[int]) -> tuple[int, ...]:
        """The end of the prompt, as long as the longest beginning."""
        return self._tail(tuple(prompt))

    def advance(self, state: tuple[int, ...], token: int) -> tuple[int, ...]:
        """The last tokens, as many as the longest beginning has."""
        return self._tail((*state, token))

    def apply(self, state: tuple[int, ...], logits: Tensor) -> Tensor:
        """Ban the last token of every word whose beginning has just been written."""
        written = (state[len(state) - n :] for n in self._lengths if n <= len(state))
        return _ban(logits, [last for each in written for last in self._endings.get(each, ())])

    def _tail(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        return tokens[max(0, len(tokens) - max(self._lengths, default=0)) :]


@dataclass(frozen=True, slots=True)
class NoRepeatNgram:
    """Lets no sequence of n tokens occur twice; those of the prompt count."""

    n: int

    def start(self, prompt: Sequence[int]) -> Tensor:
        """The whole prompt."""
        return _history(prompt)

    def advance(self, state: Tensor, token: int) -> Tensor:
        """The whole history with one more token."""
        return _append(state, token)

    def apply(self, state: Tensor, logits: Tensor) -> Tensor:
        """Ban each token that once followed the n-1 tokens that the history ends in."""
        if len(state) < self.n:
            return logits
        windows = state.unfold(0, self.n, 1)
        written = state[len(state) - self.n + 1 :]
        banned = windows[(windows[:, :-1] == written).all(-1), -1]
        return _ban(logits, banned)


@dataclass(frozen=True, slots=True)
class MinTokens:
    """Bans the end tokens until n tokens were generated."""

    n: int
    end_ids: tuple[int, ...]

    def start(self, prompt: Sequence[int]) -> int:
        """No token is generated yet."""
        return 0

    def advance(self, state: int, token: int) -> int:
        """One token more, whichever it is."""
        return state + 1

    def apply(self, state: int, logits: Tensor) -> Tensor:
        """Ban the end tokens while fewer than n tokens were generated."""
        return _ban(logits, self.end_ids) if state < self.n else logits


def _history(tokens: Sequence[int]) -> Tensor:
    return torch.tensor(tokens, dtype=torch.int64)


def _append(history: Tensor, token: int) -> Tensor:
    return torch.cat((history, torch.tensor([token])))


def _with_logit(ids: Tensor, logits: Tensor) -> Tensor:
    return ids[ids < logits.shape[0]].to(logits.device)


def _counts(history: Tensor, logits: Tensor) -> Tensor:
    # Sums of whole numbers: exact in whatever order a device adds them.
    ids = _with_logit(history, logits)
    return torch.zeros_like(logits).index_add_(0, ids, logits.new_ones(len(ids)))


def _ban(logits: Tensor, ids: Tensor | Sequence[int]) -> Tensor:
    if len(ids) == 0:
        return logits
    banned = _with_logit(torch.as_tensor(ids, dtype=torch.int64), logits)
    return logits.index_fill(0, banned, -torch.inf)
