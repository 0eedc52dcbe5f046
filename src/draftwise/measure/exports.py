"""What was found best, as settings that run elsewhere: vLLM, SGLang, llama.cpp and transformers.

Each text can be pasted as it is: a comment that says for which versions the names hold, then a command,
or a Python program. Where an engine has no counterpart, there is one line that begins with "not
possible: " instead. Names were looked up in the engines' sources and documentation in November 2026.
"""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Literal, TypeAlias

from draftwise.text.vocabulary import VocabularyKind

ModelKind: TypeAlias = Literal["built-in", "folder", "gguf", "hub", "object"]
"""Where a model comes from, in the words of `models.sources`."""

DraftKind: TypeAlias = Literal[ModelKind, "lookup", "suffix", "mixed", "self", "none"]
"""A draft model, by where it comes from, or a drafter without one."""

NOT_POSSIBLE = "not possible: "

ORIGINALS = {
    "qwen2.5-coder-1.5b": "Qwen/Qwen2.5-Coder-1.5B-Instruct",
    "smollm2-135m": "HuggingFaceTB/SmolLM2-135M-Instruct",
    "gemma3-270m": "google/gemma-3-270m",
}
"""What the built-in models were made of, on the Hub; other engines do not know our names."""

MATCHED = (2, 16)
"""Tokens that prompt lookup compares: at least, and at most."""

_GGUF_TYPES = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


@dataclass(frozen=True, slots=True)
class Setting:
    """What to run: the target, what drafts for it, and k.

    draft: a model's name; of no account where the draft is none. vocabulary: how the draft's compares
    with the target's, in the words of `text.vocabulary`; "same" where no model drafts.
    """

    target: str
    target_kind: ModelKind
    draft: str
    draft_kind: DraftKind
    k: int
    vocabulary: VocabularyKind
    dtype: str
    device: str
    temperature: float = 0.0


class _NotPossible(Exception):
    """An engine has no counterpart; the message is the reason."""


def exports(setting: Setting) -> dict[str, str]:
    """The setting for each engine."""
    if setting.k == 0:
        setting = replace(setting, draft_kind="none")
    if setting.draft_kind == "self":
        setting = replace(setting, draft=setting.target, draft_kind=setting.target_kind)
    return {engine: _made(make, setting) for engine, make in _ENGINES.items()}


def _made(make: Callable[[Setting], str], setting: Setting) -> str:
    try:
        if setting.draft_kind == "mixed":
            raise _NotPossible("no option makes it mix drafters as draftwise does")
        return make(setting)
    except _NotPossible as reason:
        return f"{NOT_POSSIBLE}{reason}"


def _vllm(setting: Setting) -> str:
    lines = [_server_comment("vLLM 0.26", setting)]
    command = f"vllm serve {quote(_weights(setting.target, setting.target_kind))}"
    command += f" --dtype {_server_dtype(setting)}"
    config: dict[str, str | int] = {"num_speculative_tokens": setting.k}
    match setting.draft_kind:
        case "none":
            config.clear()
        case "lookup":
            shortest, longest = MATCHED
            config |= {
                "method": "ngram",
                "prompt_lookup_min": shortest,
                "prompt_lookup_max": longest,
            }
        case "suffix":
            lines.append("# where vLLM uses its V1 model runner: pip install arctic-inference")
            config |= {"method": "suffix"}
        case kind:
            config |= {"method": "draft_model", "model": _weights(setting.draft, kind)}
            if setting.vocabulary != "same":  # it compares the rows of the embeddings
                config |= {"use_heterogeneous_vocab": True}
    if config:
        command += f" --speculative-config {quote(json.dumps(config))}"
    return "\n".join([*lines, command])


def _sglang(setting: Setting) -> str:
    lines = [_server_comment("SGLang 0.5.4", setting)]
    command = "python -m sglang.launch_server"
    command += f" --model-path {quote(_weights(setting.target, setting.target_kind))}"
    command += f" --dtype {_server_dtype(setting)}"
    checked = f"--speculative-num-draft-tokens {setting.k + 1}"  # it counts the last token too
    match setting.draft_kind:
        case "none":
            pass
        case "lookup" | "suffix":
            lines.append("# NGRAM needs a CUDA GPU")
            command += f" --speculative-algorithm NGRAM {checked}"
            command += " --speculative-ngram-max-bfs-breadth 1"
        case kind:
            _require_shared_vocabulary(setting)
            command += " --speculative-algorithm STANDALONE"
            command += f" --speculative-draft-model-path {quote(_weights(setting.draft, kind))}"
            command += f" --speculative-num-steps {setting.k} --speculative-eagle-topk 1 {checked}"
    return "\n".join([*lines, command])


def _llama_cpp(setting: Setting) -> str:
    lines = [_server_comment("llama.cpp b9235", setting)]
    target, conversion = _gguf(setting, setting.target, setting.target_kind, "-m", "-hf")
    conversions = [conversion]
    command = f"llama-server {target}"
    match setting.draft_kind:
        case "none":
            pass
        case "lookup":
            shortest, _ = MATCHED
            lines.append(f"# it compares {shortest} tokens; draftwise prefers longer matches")
            command += f" --spec-type ngram-simple --spec-ngram-simple-size-n {shortest}"
            command += f" --spec-ngram-simple-size-m {setting.k}"
        case "suffix":
            raise _NotPossible("it has no suffix decoding")
        case kind:
            _require_shared_vocabulary(setting)
            lines.append("# older builds: --draft-max for --spec-draft-n-max, and no --spec-type")
            draft, conversion = _gguf(setting, setting.draft, kind, "-md", "-hfd")
            conversions.append(conversion)
            command += f" --spec-type draft-simple {draft}"
            command += f" --spec-draft-n-max {setting.k} --spec-draft-p-min 0"
    needed = [conversion for conversion in dict.fromkeys(conversions) if conversion]
    if needed:
        lines.append("# it reads GGUF files: make them once, with the script in its repository")
    return "\n".join([*lines, *needed, command])


def _transformers(setting: Setting) -> str:
    greedy = setting.temperature == 0
    options = "do_sample=False" if greedy else f"do_sample=True, temperature={setting.temperature}"
    assistant: list[str] = []
    match setting.draft_kind:
        case "none":
            pass
        case "lookup":
            options += f", prompt_lookup_num_tokens={setting.k}"
        case "suffix":
            raise _NotPossible("it has no suffix decoding")
        case kind:
            options += ", assistant_model=assistant"
            name = _pretrained(setting.draft, kind)
            assistant = [
                _loading("assistant", name, setting),
                "drafting = assistant.generation_config  # generate() takes no such options",
                f"drafting.num_assistant_tokens = {setting.k}",
                'drafting.num_assistant_tokens_schedule = "constant"',
                "drafting.assistant_confidence_threshold = 0.0",
            ]
            if setting.vocabulary != "same":  # it compares the rows of the embeddings
                assistant.append(f"theirs = AutoTokenizer.from_pretrained({name})")
                options += ", tokenizer=tokenizer, assistant_tokenizer=theirs"
    name = _pretrained(setting.target, setting.target_kind)
    return "\n".join(
        [
            f"# transformers 5.24 or later{_off(setting)}",
            "import torch",
            "from transformers import AutoModelForCausalLM, AutoTokenizer",
            "",
            f"tokenizer = AutoTokenizer.from_pretrained({name})",
            _loading("target", name, setting),
            *assistant,
            'inputs = tokenizer("Once upon a time", return_tensors="pt").to(target.device)',
            f"output = target.generate(**inputs, max_new_tokens=128, {options})",
            "print(tokenizer.decode(output[0], skip_special_tokens=True))",
        ]
    )


_ENGINES: dict[str, Callable[[Setting], str]] = {
    "vLLM": _vllm,
    "SGLang": _sglang,
    "llama.cpp": _llama_cpp,
    "transformers": _transformers,
}


def _server_comment(since: str, setting: Setting) -> str:
    requests = f"measured at temperature {setting.temperature:g}: ask for that in every request"
    return f"# {since} or later{_off(setting)}; {requests}"


def _off(setting: Setting) -> str:
    return "; speculation is off" if setting.draft_kind == "none" else ""


def _server_dtype(setting: Setting) -> str:
    if setting.dtype == "float64":
        raise _NotPossible("it does not compute in float64: measure in float32 or 16 bits")
    return setting.dtype


def _require_shared_vocabulary(setting: Setting) -> None:
    if setting.vocabulary == "different":
        raise _NotPossible(
            f"it takes only a draft of the target's vocabulary, and {setting.draft} has another"
        )


def _located(name: str, kind: DraftKind) -> tuple[str, DraftKind]:
    """A model as other programs find it: ~ spelled out, a built-in one by what it was made of."""
    if kind == "object":
        raise _NotPossible(f"{name} is an object in memory: save it, and name its folder")
    if kind == "built-in":
        return ORIGINALS[name], "hub"
    return (name if kind == "hub" else os.path.expanduser(name)), kind


def _weights(name: str, kind: DraftKind) -> str:
    """A folder or Hub name."""
    name, kind = _located(name, kind)
    if kind == "gguf":
        raise _NotPossible(f"{name} is a GGUF file: name the model that it was made of")
    return name


def _gguf(
    setting: Setting, name: str, kind: DraftKind, file_option: str, hub_option: str
) -> tuple[str, str]:
    """The option that names a GGUF file, and the command that makes it: empty if there is one."""
    name, kind = _located(name, kind)
    if kind == "gguf":
        return f"{file_option} {quote(name)}", ""
    if kind == "hub" and name.lower().endswith("gguf"):
        return f"{hub_option} {quote(name)}", ""
    if setting.dtype not in _GGUF_TYPES:
        raise _NotPossible(f"GGUF files have no {setting.dtype}: measure in float32 or 16 bits")
    type_ = _GGUF_TYPES[setting.dtype]
    parts = [part for part in Path(name).parts if part.strip("./\\")]
    file = quote(f"{'-'.join(parts) or 'model'}-{type_}.gguf")
    source = f"--remote {quote(name)}" if kind == "hub" else quote(name)
    script = f"python convert_hf_to_gguf.py {source} --outtype {type_} --outfile {file}"
    return f"{file_option} {file}", script


def _pretrained(name: str, kind: DraftKind) -> str:
    """Arguments of `from_pretrained` that name a model."""
    name, kind = _located(name, kind)
    if kind == "gguf":
        return f"{str(Path(name).parent)!r}, gguf_file={Path(name).name!r}"
    return repr(name)


def _loading(variable: str, name: str, setting: Setting) -> str:
    arguments = f"{name}, dtype=torch.{setting.dtype}"
    return f"{variable} = AutoModelForCausalLM.from_pretrained({arguments}).to({setting.device!r})"
