"""What the tests of the loop and of the drafters share: requests, runs and drafts, a line each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from transformers import PreTrainedModel

from draftwise.core.clock import FakeClock
from draftwise.core.processors import Processor
from draftwise.core.proposals import Proposal
from draftwise.core.sampling import Sampler, SamplingOptions
from draftwise.core.stopping import StopConditions
from draftwise.decoding.generation import Request
from draftwise.decoding.run import Run
from draftwise.drafters.drafter import DraftSession
from draftwise.drafters.lookup import PromptLookup
from draftwise.drafters.model import DraftModel
from draftwise.drafters.none import NoDraft
from draftwise.models.eager import EagerRunner
from draftwise.models.row import Row
from draftwise.testing.scripted import ScriptedDrafter
from draftwise.testing.simulator import Guess, Next
from draftwise.testing.toys import VOCAB_SIZE, noisy, table_model, toy

KS = (1, 2, 3, 5, 8)


def letters(ids: Sequence[int]) -> str:
    """Text of tokens, a character each: token 0 is "a"."""
    return "".join(chr(ord("a") + token) for token in ids)


def tokens_of(text: str) -> list[int]:
    return [ord(letter) - ord("a") for letter in text]


def request(
    prompt: Sequence[int],
    *,
    vocab_size: int = VOCAB_SIZE,
    k: int = 3,
    max_tokens: int = 20,
    end_ids: Sequence[int] = (),
    stop_ids: Sequence[int] = (),
    stop_strings: Sequence[str] = (),
    min_tokens: int = 0,
    decode: Callable[[Sequence[int]], str] = letters,
    seed: int = 1,
    choice: int = 0,
    rule: str = "match",
    context_length: int | None = None,
    num_leading: int = 8,
    processors: Sequence[Processor] = (),
    **sampling,
) -> Request:
    options = SamplingOptions(min_tokens=min_tokens, **sampling)
    return Request(
        prompt=tuple(prompt),
        sampler=Sampler(
            options, vocab_size=vocab_size, end_ids=tuple(end_ids), processors=processors
        ),
        stop=StopConditions(
            end_ids=frozenset(end_ids),
            stop_ids=frozenset(stop_ids),
            stop_strings=tuple(stop_strings),
            max_tokens=max_tokens,
            min_tokens=min_tokens,
        ),
        decode=decode,
        seed=seed,
        k=k,
        rule=rule,
        choice=choice,
        context_length=context_length,
        num_leading=num_leading,
    )


def speculate(request: Request, target: Row, session: DraftSession) -> Run:
    return Run(request, target, session, FakeClock()).finish()


def plain(request: Request, target: Row) -> Run:
    return Run(request, target, None, FakeClock()).finish()


def counted(run: Run) -> list[tuple[int, int, int]]:
    """(drafted, accepted, emitted) of every round, as the simulator gives them."""
    return [(r.count.drafted, r.count.accepted, r.count.emitted) for r in run.rounds]


def some_prompt(seed: int, length: int = 13) -> list[int]:
    """A prompt whose second half repeats its first, so that looking things up finds something."""
    half = torch.randint(
        VOCAB_SIZE, (-(-length // 2),), generator=torch.Generator().manual_seed(seed)
    ).tolist()
    return (half + half)[:length]


def model_of(kind: str, seed: int = 0) -> PreTrainedModel:
    """A toy; or "table", which writes in circles, so that looking things up pays."""
    if kind != "table":
        return toy(kind, seed)
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(VOCAB_SIZE, VOCAB_SIZE, generator=generator)
    logits[:, 16:] -= 5.0
    return table_model(logits)


def greedy_next(model: PreTrainedModel) -> Next:
    """What a model writes next, from scratch each time and without any cache."""

    @cache
    def following(ids: tuple[int, ...]) -> int:
        with torch.inference_mode():
            return int(model(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax())

    return lambda ids: following(tuple(ids))


def naive_lookup(ids: list[int], shortest: int = 2) -> int | None:
    """What followed the longest earlier occurrence of the text's end, and of those the last."""
    for length in range(len(ids) - 1, shortest - 1, -1):
        for start in range(len(ids) - length - 1, -1, -1):
            if ids[start : start + length] == ids[-length:]:
                return ids[start + length]
    return None


class Says:
    """A drafter that proposes whatever a function makes of the text and k, and counts its calls."""

    name = "says"
    usual_k = 3
    adapts = False

    def __init__(self, propose: Callable[[list[int], int], Sequence[int]]) -> None:
        self._propose = propose
        self.calls = 0

    def open(self) -> "Says":
        return self

    def prefill(self, ids: list[int]) -> None:
        self.calls += 1

    def propose(self, ids, k, sampling, randomness, goes_on=None) -> Proposal:
        self.calls += 1
        return Proposal(tuple(self._propose(ids, k)))

    def synchronize(self) -> None:
        pass

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class Draft:
    """A session to run, and what the simulator is told that it proposes."""

    session: DraftSession
    guess: Guess


class Rig:
    """A toy target with its row, and a draft of every sort beside it."""

    def __init__(self, kind: str) -> None:
        model = model_of(kind)
        self.runner = EagerRunner(model)
        self.row = Row(self.runner)
        self.next = greedy_next(model)
        amount = 0.5 if kind == "table" else 0.1
        self._models = {"noisy": noisy(model, amount), "other": model_of(kind, seed=5)}
        self._drafts: dict[str, Draft] = {}

    def draft(self, name: str, reference: Sequence[int] = ()) -> Draft:
        """One session a name, kept from run to run as an engine keeps it.

        reference: the target's whole text, for the scripted draft.
        """
        if name == "scripted":
            scripted = ScriptedDrafter(reference, accuracy=0.7, vocab_size=VOCAB_SIZE, seed=4)
            return Draft(scripted, _one_by_one(scripted))
        if name not in self._drafts:
            self._drafts[name] = self._new(name)
        return self._drafts[name]

    def draft_runner(self, name: str) -> EagerRunner:
        """A draft model's runner, for sessions beside the one that is kept."""
        return EagerRunner(self._models[name])

    def _new(self, name: str) -> Draft:
        if name == "same":  # the target drafts for itself, in a second row of one runner
            return Draft(DraftModel(self.runner, "self").open(), self.next)
        if name == "lookup":
            return Draft(PromptLookup(longest=1000).open(), naive_lookup)
        if name == "none":
            return Draft(NoDraft().open(), lambda ids: None)
        model = self._models[name]
        return Draft(DraftModel(EagerRunner(model), name).open(), greedy_next(model))


def _one_by_one(scripted: ScriptedDrafter) -> Guess:
    state = request([0]).sampler.start([0])

    def guess(ids: list[int]) -> int | None:
        tokens = scripted.propose(ids, 1, state, NoRandomness()).tokens
        return tokens[0] if tokens else None

    return guess


class NoRandomness:
    """For what must not draw."""

    def draw(self, p, position):
        raise AssertionError("drew")

    def accept(self, p, q):
        raise AssertionError("asked")


@cache
def rig(kind: str) -> Rig:
    """One rig a kind for all tests: what one leaves in its rows must not hurt the next."""
    return Rig(kind)
