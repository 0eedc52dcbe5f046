"""Each architecture is right under any history, or refused with a line that says why: never wrong."""

import random

import pytest

from draftwise.core.errors import ModelError
from draftwise.models.probe import require_rollback
from tests.models.architectures import ATTENTION, STATEFUL, UNMASKABLE, WINDOW, tiny
from tests.models.rig import Mirror, alone, one_thread, text  # noqa: F401


@pytest.mark.parametrize("kind", ATTENTION)
def test_an_attention_model_is_accepted_and_right_under_any_history(kind: str) -> None:
    model, ids = tiny(ATTENTION[kind]()), text(2 * WINDOW)
    before, after = alone(model, ids), alone(model, [ids[0] - 1, *ids[1:]])
    assert (before - after)[WINDOW - 1].abs().mean() > 0.05 * before[WINDOW - 1].std()

    require_rollback(model, kind)
    chance, rows = random.Random(kind), Mirror(model, near=1e-4)
    one, two = rows.add(text(5 * WINDOW)), rows.add()
    for seed in range(8):
        if seed % 2:
            rows.crop(one, chance.randrange(len(rows.held[one]) + 1))
            rows.crop(two, chance.randrange(len(rows.held[two]) + 1))
        order = chance.sample((one, two), chance.randint(1, 2))
        rows.read({row: text(chance.choice((1, 1, 4, 9, 20)), seed) for row in order})
    rows.check()


@pytest.mark.parametrize("kind", STATEFUL)
def test_a_model_with_a_state_is_refused_by_its_kind(kind: str) -> None:
    config, named = STATEFUL[kind]
    with pytest.raises(ModelError, match=rf"(?s)^Tiny is a {kind} model.*{named}"):
        require_rollback(tiny(config()), "Tiny")


@pytest.mark.parametrize("kind", UNMASKABLE)
def test_a_model_with_positions_or_masks_of_its_own_is_refused(kind: str) -> None:
    config, named = UNMASKABLE[kind]
    with pytest.raises(ModelError, match=rf"(?s)^Tiny is a {kind} model.*{named}"):
        require_rollback(tiny(config()), "Tiny")
