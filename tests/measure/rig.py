"""What the tests of measuring share: toy targets behind a runner that takes the time it is told to."""

from collections.abc import Sequence
from functools import cache

import torch
from transformers import PreTrainedModel

from draftwise.core.clock import FakeClock
from draftwise.core.proposals import Proposal
from draftwise.drafters.drafter import Drafter
from draftwise.drafters.model import DraftModel
from draftwise.drafters.none import NoDraft
from draftwise.engine.options import GenerateOptions
from draftwise.measure.bench import Bench, Step
from draftwise.measure.subject import Subject
from draftwise.measure.workloads import BenchPrompt
from draftwise.models.devices import set_threads
from draftwise.models.eager import EagerRunner
from draftwise.models.loading import load_model
from draftwise.testing.scripted import ScriptedDrafter
from draftwise.testing.tokenizers import NUM_TOKENS, byte_tokenizer
from draftwise.testing.toys import noisy, toy

TOKENS = 24
PROSE = BenchPrompt("prose", 0, "one two, one two")
CODE = BenchPrompt("code", 0, "a = b; a = b")
SECOND = 1 / 64
"""A unit of time whose sums are exact, so that the same work always takes the same time."""


class Billed(EagerRunner):
    """A pass takes `first`, and `more` for each token after its first, by a clock of the test's own.

    interrupt_at: the pass, counted from 1, in which the user presses Ctrl-C.
    """

    def __init__(self, model, context_length=None, *, clock, first=8 * SECOND, more=SECOND / 8):
        super().__init__(model, context_length)
        self.clock, self.first, self.more = clock, first, more
        self.passes, self.interrupt_at = 0, None
        self.rows: set[int] = set()

    def read(self, reads, hidden_layers=()):
        self.passes += 1
        if self.passes == self.interrupt_at:
            raise KeyboardInterrupt
        self.clock.advance(self.first + self.more * (max(len(r.tokens) for r in reads) - 1))
        return super().read(reads, hidden_layers)

    def add_row(self):
        row = super().add_row()
        self.rows.add(row)
        return row

    def remove_row(self, row):
        super().remove_row(row)
        self.rows.discard(row)


class ForgetsToCrop(Billed):
    """Faulty: a rollback leaves one rejected token in the row."""

    def crop(self, row, length):
        if length < self.length(row):
            self._cache.lengths[row] = min(length + 1, self.length(row))


class AlwaysWrong(NoDraft):
    """Proposes tokens that no toy writes, so that every round rolls back."""

    name = "wrong"

    def propose(self, ids, k, sampling, randomness, goes_on=None):
        return Proposal((NUM_TOKENS - 1,) * k)


@cache
def model_of(kind: str, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """A toy whose text never comes back to itself; or one that writes in "circles", for lookup."""
    seed, scale = (1, 0.1) if kind == "circles" else (0, 0.3)
    return toy("llama", seed, dtype, scale, NUM_TOKENS)


class Toys:
    """A toy target with its clock, and subjects made of it."""

    def __init__(self, kind: str = "circles", dtype: torch.dtype = torch.float32, runner=Billed):
        set_threads(1)  # more would wait for each other
        self.model = model_of(kind, dtype)
        self.clock = FakeClock()
        self.target = load_model((self.model, byte_tokenizer()))
        self.runner = runner(self.model, self.target.context_length, clock=self.clock)

    def subject(self, *drafters: Drafter, **options) -> Subject:
        given = {"tokens": TOKENS, "ignore_eos": True} | options
        return Subject(self.target, self.runner, drafters, GenerateOptions(**given), self.clock)

    def itself(self) -> DraftModel:
        return DraftModel(self.runner, "self")

    def draft(self, amount: float, name: str = "draft", **costs) -> DraftModel:
        """A noisy copy of the target, which takes a quarter of its time unless told otherwise."""
        given = {"first": 2 * SECOND, "more": 0.0} | costs
        model = noisy(self.model, amount)
        return DraftModel(Billed(model, 512, clock=self.clock, **given), name)

    def scripted(self, prompt: BenchPrompt, accuracy: float, seconds: float) -> ScriptedDrafter:
        """A drafter that knows what the target writes behind one prompt."""
        with self.subject() as subject:
            (plain, _) = subject.side_by_side(prompt, [])["none", 0]
        script = [*plain.request.prompt, *plain.token_ids, *range(100)]
        return ScriptedDrafter(
            script,
            accuracy,
            vocab_size=NUM_TOKENS,
            seconds_per_token=seconds,
            sleep=self.clock.advance,
        )


def carry_out(bench: Bench, done: list[str] | None = None) -> list[str]:
    """Do all that is left, and add what it was to `done`."""
    done = [] if done is None else done
    for phase in (bench.look, bench.time):
        for step in phase():
            step.work()
            done.append(step.what)
    return done


def left(bench: Bench) -> Sequence[Step]:
    return [*bench.look(), *bench.time()]
