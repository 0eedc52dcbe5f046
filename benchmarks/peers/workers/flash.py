"""FlashSpec on the CPU: prompt lookup. Its draft models must share the target's vocabulary."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from flashspec import BanditConfig, FlashSpecConfig, SamplingConfig, SpeculativeEngine
from flashspec.engine import HuggingFaceDrafter, NgramDrafter, TargetModel
from line import Answer, Decode, serve
from transformers import AutoModelForCausalLM


@cache
def _load(folder: str) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()


def open_setting(setting: str, options: Mapping[str, Any]) -> Decode:
    """lookup or draft."""
    torch.set_num_threads(options["threads"])
    cpu, target = torch.device("cpu"), _load(options["target"])
    if setting == "draft":
        draft = _load(options["draft"])
        if draft.config.vocab_size != target.config.vocab_size:
            raise ValueError(
                "FlashSpec's drafters share the target's tokenizer; this pair does not"
            )
        drafter = HuggingFaceDrafter(options["draft"], cpu, torch.bfloat16, model=draft)
    else:
        drafter = NgramDrafter()
    gamma = options["draft_tokens" if setting == "draft" else "lookup_tokens"]
    config = FlashSpecConfig(
        device="cpu",
        dtype="bfloat16",
        sampling=SamplingConfig(temperature=0.0, gamma=gamma),
        drafter_strategy="bandit",  # with one drafter: that one, at gamma
        bandit=BanditConfig(n_arms=1),
    )
    wrapped = TargetModel(options["target"], cpu, torch.bfloat16, model=target)
    engine = SpeculativeEngine(config, [drafter], wrapped)

    def decode(ids: list[int], tokens: int) -> Answer:
        result = engine.generate(torch.tensor([ids]), tokens, eos_token_ids=options["end_ids"])
        written = result.output_ids[0, : result.n_tokens_generated].tolist()
        steps = result.arm_steps
        drafted, accepted = (
            sum(getattr(s, name) for s in steps) for name in ("proposed", "accepted")
        )
        return Answer(written, None, drafted, accepted, len(steps))

    return decode


if __name__ == "__main__":
    serve(open_setting, ("flashspec", "transformers", "torch"))
