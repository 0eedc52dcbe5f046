"""vLLM for CPU: plain, n-gram lookup, and a draft model. One setting a process: an engine has one."""

import os
from collections.abc import Mapping
from typing import Any

from line import Answer, Decode, serve


def _speculation(setting: str, options: Mapping[str, Any]) -> dict[str, Any] | None:
    if setting == "lookup":
        return {
            "method": "ngram",
            "num_speculative_tokens": options["lookup_tokens"],
            "prompt_lookup_max": 3,
            "prompt_lookup_min": 1,
        }
    if setting == "draft":
        return {
            "method": "draft_model",
            "model": options["draft"],
            "num_speculative_tokens": options["draft_tokens"],
            "use_heterogeneous_vocab": True,  # tokens that both vocabularies have
        }
    return None


def _drafted(engine: Any) -> tuple[int, int]:
    """Tokens drafted and accepted since the engine began."""
    values = {metric.name: getattr(metric, "value", 0) for metric in engine.get_metrics()}
    drafted, accepted = (
        values.get(f"vllm:spec_decode_num_{which}_tokens", 0) for which in ("draft", "accepted")
    )
    return drafted, accepted


def open_setting(setting: str, options: Mapping[str, Any]) -> Decode:
    """plain, lookup or draft."""
    os.environ |= {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": str(options["threads"]),
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    import torch  # after the settings above, which are read when it is imported
    from vllm import LLM, SamplingParams

    torch.set_num_threads(options["threads"])
    engine = LLM(
        options["target"],
        dtype="bfloat16",
        max_model_len=2048,
        max_num_seqs=1,
        enable_prefix_caching=False,  # every repeat reads its prompt
        disable_log_stats=False,
        speculative_config=_speculation(setting, options),
    )

    def decode(ids: list[int], tokens: int) -> Answer:
        sampling = SamplingParams(temperature=0, max_tokens=tokens)
        sampling.stop_token_ids = options["end_ids"]
        before = _drafted(engine)
        [result] = engine.generate([{"prompt_token_ids": ids}], sampling, use_tqdm=False)
        drafted, accepted = (now - then for now, then in zip(_drafted(engine), before, strict=True))
        first = getattr(result.metrics, "first_token_latency", None)
        return Answer(list(result.outputs[0].token_ids), first, drafted, accepted)

    return decode


if __name__ == "__main__":
    serve(open_setting, ("vllm-cpu", "torch", "transformers"))
