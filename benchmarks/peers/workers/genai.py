"""OpenVINO GenAI: plain, with prompt lookup, and with a draft model."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import openvino
import openvino_genai as genai
from line import Answer, Decode, serve


def open_setting(setting: str, options: Mapping[str, Any]) -> Decode:
    """plain, lookup or draft."""
    scheduler = genai.SchedulerConfig()
    scheduler.enable_prefix_caching = False  # every repeat reads its prompt
    scheduler.cache_size = 1
    named = {
        "scheduler_config": scheduler,
        "INFERENCE_NUM_THREADS": options["threads"],
        "INFERENCE_PRECISION_HINT": "bf16",
    }
    if setting == "lookup":
        named["prompt_lookup"] = True
    elif setting == "draft":
        named["draft_model"] = genai.draft_model(options["draft"], "CPU")
    pipeline = genai.LLMPipeline(options["target"], "CPU", **named)

    def decode(ids: list[int], tokens: int) -> Answer:
        config = genai.GenerationConfig(max_new_tokens=tokens, do_sample=False)
        config.stop_token_ids = set(options["end_ids"])
        config.apply_chat_template = False
        if setting == "lookup":
            config.num_assistant_tokens, config.max_ngram_size = options["lookup_tokens"], 3
        elif setting == "draft":
            config.num_assistant_tokens = options["draft_tokens"]
        prompt = np.array([ids], dtype=np.int64)
        inputs = genai.TokenizedInputs(
            openvino.Tensor(prompt), openvino.Tensor(np.ones_like(prompt))
        )
        result = pipeline.generate(inputs, config)
        first = result.perf_metrics.get_ttft().mean / 1000
        told = result.extended_perf_metrics
        if told is None:  # it tells of draft models alone
            return Answer(list(result.tokens[0]), first)
        drafted, accepted = told.get_num_draft_tokens(), told.get_num_accepted_tokens()
        return Answer(list(result.tokens[0]), first, drafted, accepted)

    return decode


if __name__ == "__main__":
    serve(open_setting, ("openvino-genai", "openvino"))
