"""A run that is left anywhere, in any way, leaves rows as good as new, and no memory behind.

Left by a consumer who closes it, drops it or raises; by an error or Ctrl-C in the middle of a pass
of target or draft, and in what a user brings along. The caches grow from almost nothing meanwhile.
"""

import gc
from contextlib import suppress
from random import Random

import pytest
import torch

from draftwise.core.clock import FakeClock
from draftwise.decoding.run import Run
from draftwise.drafters.lookup import PromptLookup
from draftwise.drafters.model import DraftModel
from draftwise.models.eager import EagerRunner
from draftwise.models.row import Row
from draftwise.testing.simulator import simulate
from draftwise.testing.toys import noisy, toy
from tests.decoding.rig import (
    Says,
    counted,
    greedy_next,
    letters,
    naive_lookup,
    plain,
    request,
    some_prompt,
    speculate,
)

TOKENS = 10


class Tripwire:
    """Raises when it has been passed so many times; disarmed, it lets everything through."""

    def __init__(self):
        self.disarm()

    def disarm(self):
        self._left, self._error = None, None

    def arm(self, times, error):
        self._left, self._error = times, error

    def __call__(self, *args):
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise self._error

    def watch(self, model):
        """Lie in front of every layer and the head: an error may come half way through a pass."""
        for layer in (*model.model.layers, model.lm_head):
            layer.register_forward_pre_hook(self)
        return model


class ConsumerError(Exception):
    pass


def leave_by_closing(run, wire, chance):
    for _ in range(chance.randrange(4)):
        next(run, None)
    run.close()


def leave_by_dropping_it(run, wire, chance):
    for _ in range(chance.randrange(4)):
        next(run, None)


def leave_by_an_error_of_the_consumer(run, wire, chance):
    with suppress(ConsumerError):
        for _ in run:
            if chance.random() < 0.5:
                raise ConsumerError


def leave_by(error):
    def leave(run, wire, chance):
        wire.arm(chance.randrange(60), error)
        with suppress(error):
            run.finish()
        wire.disarm()

    return leave


WAYS = [
    leave_by_closing,
    leave_by_dropping_it,
    leave_by_an_error_of_the_consumer,
    leave_by(RuntimeError),
    leave_by(MemoryError),
    leave_by(KeyboardInterrupt),
]


def bytes_of_live_tensors():
    gc.collect()
    tensors = [x for x in gc.get_objects() if issubclass(type(x), torch.Tensor)]
    storages = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in tensors}
    return sum(storages.values())


def test_three_hundred_aborts_leave_rows_right_and_memory_flat(monkeypatch):
    monkeypatch.setattr("draftwise.models.cache._FIRST_CAPACITY", 2)
    wire, chance = Tripwire(), Random(8)
    target = toy("llama")
    draft = noisy(target, 0.1)
    row = Row(EagerRunner(wire.watch(target)))
    sessions = {
        "model": (DraftModel(EagerRunner(wire.watch(draft)), "draft").open(), greedy_next(draft)),
        "lookup": (PromptLookup(longest=1000).open(), naive_lookup),
    }
    prompts = [some_prompt(seed, length) for seed, length in [(1, 4), (2, 9), (3, 15)]]
    prompts.append(prompts[2][:7])  # a beginning of another one

    def check(name, prompt, k):
        session, guess = sessions[name]
        run = speculate(request(prompt, k=k, max_tokens=TOKENS), row, session)
        expected = simulate(greedy_next(target), guess, prompt, k, TOKENS)
        assert (run.token_ids, counted(run)) == (expected.ids, expected.rounds)

    def abort():
        session, _ = sessions[chance.choice(list(sessions))]
        asked = request(chance.choice(prompts), k=chance.randrange(1, 6), max_tokens=TOKENS)
        chance.choice(WAYS)(Run(asked, row, session, FakeClock()), wire, chance)

    sizes = []
    for i in range(300):
        abort()
        if i % 20 == 19:
            check(chance.choice(list(sessions)), chance.choice(prompts), k=chance.randrange(1, 6))
        if i % 100 == 99:
            sizes.append(bytes_of_live_tensors())
    assert sizes == [sizes[0]] * 3


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_at_every_single_layer_of_a_run_leaves_the_rows_right(error):
    wire, model = Tripwire(), toy("gemma3")
    draft = noisy(model, 0.1)
    row = Row(EagerRunner(wire.watch(model)))
    session = DraftModel(EagerRunner(wire.watch(draft)), "draft").open()
    asked = request(some_prompt(1), k=2, max_tokens=4)
    expected = counted(speculate(asked, row, session))
    for layer in range(60):
        wire.arm(layer, error)
        with suppress(error):
            speculate(asked, row, session)
        wire.disarm()
        assert counted(speculate(asked, row, session)) == expected


class Touchy:
    """A user's processor that raises at the given application."""

    def __init__(self, at):
        self.left = at

    def start(self, prompt):
        return None

    def advance(self, state, token):
        return None

    def apply(self, state, logits):
        self.left -= 1
        if self.left < 0:
            raise ConsumerError
        return logits


@pytest.mark.parametrize("at", range(12))
def test_an_error_in_a_users_processor_leaves_the_rows_right(at):
    target = toy("llama")
    row = Row(EagerRunner(target))
    session = DraftModel(EagerRunner(noisy(target, 0.1)), "draft").open()
    expected = counted(speculate(request(some_prompt(1)), row, session))
    with pytest.raises(ConsumerError):
        speculate(request(some_prompt(1), processors=[Touchy(at)]), row, session)
    assert counted(speculate(request(some_prompt(1)), row, session)) == expected


@pytest.mark.parametrize("at", range(1, 20, 3))
def test_an_error_in_the_decoding_of_text_leaves_the_rows_right(at):
    def decode(ids):
        if text[at] in ids:
            raise ConsumerError
        return letters(ids)

    row = Row(EagerRunner(toy("llama")))
    session = DraftModel(row.runner, "self").open()
    text = plain(request(some_prompt(1)), row).token_ids
    with pytest.raises(ConsumerError):
        speculate(request(some_prompt(1), decode=decode), row, session)
    assert speculate(request(some_prompt(1)), row, session).token_ids == text


def test_a_drafter_that_raises_leaves_the_target_row_right():
    row = Row(EagerRunner(toy("llama")))

    def raises(ids, k):
        if len(ids) > 15:
            raise ConsumerError
        return ids[:k]

    expected = plain(request(some_prompt(1)), row).token_ids
    with pytest.raises(ConsumerError):
        speculate(request(some_prompt(1)), row, Says(raises))
    assert plain(request(some_prompt(1)), row).token_ids == expected


def test_a_hundred_requests_in_a_row_keep_their_memory_flat():
    target = toy("llama")
    runner = EagerRunner(target)
    row = Row(runner)
    sizes = []
    for i in range(100):
        session = DraftModel(runner, "self").open()  # rows come and go
        speculate(request(some_prompt(i % 5), max_tokens=6), row, session)
        session.close()
        if i % 50 == 49:
            sizes.append(bytes_of_live_tensors())
    assert sizes[0] == sizes[1]
