"""Only a model whose cache can be rolled back passes; any other is refused with the reason."""

from collections.abc import Callable

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from draftwise.core.errors import ModelError
from draftwise.models.eager import EagerRunner
from draftwise.models.probe import require_rollback
from draftwise.testing.toys import CONFIGS, chain_model, table_model, toy
from tests.models.rig import one_thread  # noqa: F401


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("dtype", (torch.float64, torch.float32, torch.bfloat16), ids=str)
def test_every_toy_is_accepted_in_every_dtype(kind: str, dtype: torch.dtype) -> None:
    require_rollback(toy(kind, dtype=dtype), kind)


@pytest.mark.parametrize("kind", CONFIGS)
def test_every_toy_is_accepted_with_the_plainest_attention(kind: str) -> None:
    model = toy(kind)
    model.set_attn_implementation("eager")
    require_rollback(model, kind)


@pytest.mark.parametrize(
    "model",
    [chain_model([4, 1, 7, 0, 3], vocab_size=8), table_model(torch.zeros(300, 300))],
    ids=["a chain", "nothing but zeros"],
)
def test_logits_without_any_spread_are_no_reason_to_refuse(model: PreTrainedModel) -> None:
    require_rollback(model, "Flat")


@pytest.mark.parametrize("kernel", ["flash_attention_2", "flex_attention", "kernels-community/x"])
def test_kernels_that_take_no_mask_are_refused_before_they_are_tried(kernel: str) -> None:
    model = toy()
    model.config._attn_implementation_internal = kernel
    with pytest.raises(ModelError, match=rf"Flashy uses {kernel}.*attn_implementation='sdpa'"):
        require_rollback(model, "Flashy")


def test_a_model_in_training_mode_is_told_so() -> None:
    with pytest.raises(ModelError, match=r"training mode.*eval\(\)"):
        require_rollback(toy("gpt2").train(), "Trainee")


def test_layers_with_windows_of_several_sizes_are_refused() -> None:
    config = LlamaConfig(
        vocab_size=96, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, sliding_window=8,
    )  # fmt: skip
    config.per_layer_config = {1: {"sliding_window": 16}}
    with pytest.raises(ModelError, match="windows of several sizes"):
        require_rollback(LlamaForCausalLM(config).eval(), "Mixed")


class Recurrent(LlamaForCausalLM):
    """Calls all its layers attention, and adds to each token the running sum of all it ever read."""

    state = 0.0

    def forward(self, input_ids, cache=None, **options):
        states = self.model.embed_tokens(input_ids).cumsum(1) + self.state
        if cache is not None:
            self.state = states[:, -1:]
        return super().forward(inputs_embeds=states, cache=cache, **options)


class Forgetful(LlamaForCausalLM):
    """Leaves the cache alone, and so knows nothing of what it read before."""

    def forward(self, input_ids, cache=None, attention_mask=None, **options):
        return super().forward(input_ids, **options | {"use_cache": False})


class Deaf(LlamaForCausalLM):
    """Takes no positions from outside: counts them from the cache, the same for every row."""

    def forward(self, input_ids, position_ids=None, **options):
        return super().forward(input_ids, **options)


class Blind(LlamaForCausalLM):
    """Takes no mask from outside: makes its own, which hides no stale tail."""

    def forward(self, input_ids, attention_mask=None, **options):
        return super().forward(input_ids, **options)


class Curious(LlamaForCausalLM):
    """Reaches for the keys of the cache's layers, past the cache."""

    def forward(self, input_ids, cache=None, **options):
        if cache is not None and cache.is_initialized:
            options["attention_mask"] = cache.layers[0].keys.new_zeros(1)
        return super().forward(input_ids, cache=cache, **options)


@pytest.mark.parametrize("wrong", [Recurrent, Forgetful, Deaf, Blind, Curious])
@pytest.mark.parametrize("dtype", (torch.float64, torch.bfloat16), ids=str)
def test_what_its_layers_claim_does_not_help_a_model_that_cannot(
    wrong: type[LlamaForCausalLM], dtype: torch.dtype
) -> None:
    good = toy(dtype=dtype)
    model = wrong(good.config).to(dtype=dtype).eval()
    model.load_state_dict(good.state_dict())
    with pytest.raises(ModelError, match=r"^Liar is a llama model, wh"):
        require_rollback(model, "Liar")


def test_the_probe_leaves_a_model_as_it_was() -> None:
    model = toy()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    require_rollback(model, "Good")
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    assert EagerRunner(model).add_row() == 0


def failing(error: Exception) -> Callable:
    def forward(*args, **kwargs):
        raise error

    return forward


def test_whatever_a_model_raises_becomes_one_line_that_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = toy()
    monkeypatch.setattr(model.model.layers[1], "forward", failing(IndexError("list index")))
    with pytest.raises(ModelError, match=r"Odd is a llama model.*IndexError: list index") as caught:
        require_rollback(model, "Odd")
    assert isinstance(caught.value.__cause__, IndexError)
