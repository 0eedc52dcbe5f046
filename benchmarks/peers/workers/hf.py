"""transformers: generate, with prompt lookup, and assisted by a model of another vocabulary."""

import time
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from line import Answer, Decode, serve
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.generation.streamers import BaseStreamer


class _FirstToken(BaseStreamer):
    """When the first new tokens came; `put` is called with the prompt before."""

    def __init__(self) -> None:
        self.puts, self.time = 0, None

    def put(self, value: torch.Tensor) -> None:
        self.puts += 1
        if self.puts == 2:
            self.time = time.perf_counter()

    def end(self) -> None:
        pass


@cache
def _load(folder: str) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()


def _assistance(options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "assistant_model": _load(options["draft"]),
        "tokenizer": AutoTokenizer.from_pretrained(options["target"]),
        "assistant_tokenizer": AutoTokenizer.from_pretrained(options["draft"]),
    }


def open_setting(setting: str, options: Mapping[str, Any]) -> Decode:
    """plain, lookup, or assisted, with the library's own number of tokens."""
    torch.set_num_threads(options["threads"])
    model, named = _load(options["target"]), {}
    if setting == "lookup":
        named = {"prompt_lookup_num_tokens": options["lookup_tokens"]}
    elif setting == "assisted":
        named = _assistance(options)

    def decode(ids: list[int], tokens: int) -> Answer:
        prompt, streamer = torch.tensor([ids]), _FirstToken()
        start = time.perf_counter()
        output = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=tokens,
            do_sample=False,
            streamer=streamer,
            **named,
        )
        first = streamer.time - start if streamer.time else None
        return Answer(output[0, len(ids) :].tolist(), first)

    return decode


if __name__ == "__main__":
    serve(open_setting, ("transformers", "torch"))
