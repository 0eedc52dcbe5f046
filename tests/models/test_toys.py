"""The toy models can see, so that a fault of the cache shows on them; the written ones are exact."""

import pytest
import torch

from draftwise.testing.toys import (
    CONFIGS,
    VOCAB_SIZE,
    WINDOW,
    chain_model,
    noisy,
    table_model,
    toy,
)
from tests.models.rig import NEAR, alone, one_thread, text  # noqa: F401

ALL_WINDOWED = "mistral"
"""The toy all of whose layers have a window; those of the others see everything somewhere."""

NUM_LAYERS = 3


def effect_of_the_first_token(kind: str, seed: int = 0, length: int = 48) -> torch.Tensor:
    """How far other logits move, in their standard deviations, at each position, on average."""
    model, ids = toy(kind, seed), text(length, seed)
    before, after = alone(model, ids), alone(model, [ids[0] - 1, *ids[1:]])
    return (before - after).abs().mean(-1) / before.std(-1)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", CONFIGS)
def test_an_early_token_changes_what_follows(kind: str, seed: int) -> None:
    effect = effect_of_the_first_token(kind, seed)
    assert effect[: WINDOW + 2].min() > 0.1
    reach = NUM_LAYERS * (WINDOW - 1) if kind == ALL_WINDOWED else len(effect)
    assert effect[:reach].min() > 100 * NEAR[torch.float32]


def test_nothing_is_seen_from_beyond_the_window() -> None:
    effect = effect_of_the_first_token(ALL_WINDOWED)
    reach = NUM_LAYERS * (WINDOW - 1)
    assert effect[reach] > 0
    assert torch.all(effect[reach + 1 :] == 0)


@pytest.mark.parametrize("kind", CONFIGS)
def test_the_same_seed_gives_the_same_model_and_another_seed_another(kind: str) -> None:
    ids = text(6)
    assert torch.equal(alone(toy(kind, 3), ids), alone(toy(kind, 3), ids))
    assert not torch.equal(alone(toy(kind, 3), ids), alone(toy(kind, 4), ids))


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_noisy_copy_agrees_often_but_not_always(kind: str) -> None:
    model = toy(kind)
    before, ids = model.state_dict(), text(200)
    before = {name: weight.clone() for name, weight in before.items()}
    agreed = (alone(model, ids).argmax(-1) == alone(noisy(model, 0.05), ids).argmax(-1)).double()
    assert 0.2 < agreed.mean() < 0.95
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())


@pytest.mark.parametrize("size", [2, 3, 5, 16, 17, VOCAB_SIZE])
def test_a_table_model_gives_exactly_the_logits_of_its_table(size: int) -> None:
    table = torch.randn(size, size, generator=torch.Generator().manual_seed(size)).double()
    ids = [*range(size), *reversed(range(size))]
    assert torch.equal(alone(table_model(table), ids), table[ids])


def test_a_chain_model_writes_its_text() -> None:
    chain, ids = [4, 1, 7, 0, 3], [4]
    model = chain_model(chain, vocab_size=8)
    while len(ids) < len(chain):
        ids.append(int(alone(model, ids, 1).argmax()))
    assert ids == chain


def test_a_chain_in_which_a_token_returns_is_refused() -> None:
    with pytest.raises(ValueError, match="differ"):
        chain_model([1, 2, 1], vocab_size=4)
