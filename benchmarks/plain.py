"""Is plain decoding at least as fast as transformers' own generate? Same model object, side by side.

    python benchmarks/plain.py [--target NAME] [--dtype NAME] [--tokens N] [--runs N]

Both write the same number of tokens after the same prompts, in turns; the ratio of the medians is
what counts. The wall time of the whole call is taken, prompt included, prefix reuse excluded.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch
from transformers import logging

import draftwise
from draftwise.models.devices import describe_machine

PROMPTS = (
    "Write a short story about a lighthouse keeper who finds a letter in a bottle.",
    "Explain in a few paragraphs how a refrigerator works.",
    "Write a Python function that merges two sorted lists, with a docstring and tests.",
)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="smollm2-135m")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    logging.set_verbosity_error()
    ours: list[float] = []
    theirs: list[float] = []
    with draftwise.load(options.target, "none", dtype=options.dtype) as engine:
        prompts = [engine.target.tokenizer.chat([draftwise.Message("user", p)]) for p in PROMPTS]
        for run in range(options.runs + 1):  # the first is the warm-up
            for prompt in prompts:
                engine.generate([0], tokens=1, ignore_eos=True)  # forget the last prompt's prefix
                turns = [(ours, ours_on), (theirs, theirs_on)]
                written = []
                for seconds, write in turns if run % 2 else reversed(turns):
                    taken, ids = timed(lambda w=write, p=prompt: w(engine, p, options.tokens))
                    written.append(ids)
                    if run:
                        seconds.append(taken)
                if written[0] != written[1]:
                    print(f"the texts part after {common(*written)} tokens (a near-tie?)")
        dtype = engine.target.model.dtype
    print(f"{options.target}, {dtype}, {options.tokens} tokens, {len(ours)} runs each, in turns")
    print(f"{describe_machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    for name, seconds in (("draftwise plain", ours), ("transformers generate", theirs)):
        print(f"{name:22} {1000 * median(seconds) / options.tokens:7.2f} ms a token")
    print(f"ratio of medians       {median(theirs) / median(ours):7.2f}x")


def timed(write: Callable[[], list[int]]) -> tuple[float, list[int]]:
    """Seconds, and what was written: ids on the host, so the device is done."""
    start = time.perf_counter()
    ids = write()
    return time.perf_counter() - start, ids


def ours_on(engine: draftwise.Engine, prompt: list[int], tokens: int) -> list[int]:
    """Plain decoding here."""
    return list(engine.generate(prompt, tokens=tokens, ignore_eos=True, k=0).token_ids)


def theirs_on(engine: draftwise.Engine, prompt: list[int], tokens: int) -> list[int]:
    """transformers' generate, greedy, end tokens ignored."""
    model = engine.target.model
    ids = torch.tensor([prompt], device=model.device)
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=tokens,
        eos_token_id=-1,
        pad_token_id=0,
    )
    return out[0, len(prompt) :].tolist()


def common(one: list[int], other: list[int]) -> int:
    """Length of the common beginning."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))


if __name__ == "__main__":
    main()
