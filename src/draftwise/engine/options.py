"""Every option, once. The Python API takes them by name; the command line is built from them.

An option is a field with its help and, where they are not its name, its flags. Values are checked
here or in the types that they are made into, before any model runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

from draftwise.core.errors import OptionError

if TYPE_CHECKING:
    from draftwise.core.sampling import SamplingOptions

DEFAULT_TARGET, ITS_DRAFT = "qwen2.5-coder-1.5b", "smollm2-135m"
AUTO, MIXED = "auto", "mixed"
RUNNERS = (AUTO, "eager", "openvino", "openvino-gpu", "graph")
WEIGHTS = (AUTO, "dtype", "int8", "int4", "file")
OTHERWISE = "suffix"
"""What drafts where the user names nothing: copies, beside the built-in pair's draft if it is that target."""


def option(default: Any, help: str, *flags: str, choices: tuple[str, ...] = ()) -> Any:
    """Declare an option: its default, its line of help, and its flags if not --its-name."""
    return field(default=default, metadata={"help": help, "flags": flags, "choices": choices})


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """Which models, and where and how they run."""

    target: str = option(
        DEFAULT_TARGET, "Model that writes: a built-in or Hub name, a folder, or a GGUF file."
    )
    draft: str | None = option(
        None,
        "What guesses: suffix, lookup, self, none, a model like --target, or mixed:MODEL, which is that "
        f"model or a copy. By default mixed:{ITS_DRAFT} for the default target, else {OTHERWISE}.",
    )
    device: str = option("auto", "auto, cpu, cuda, cuda:N or mps.")
    dtype: str = option("auto", "auto, float32, bfloat16, float16 or float64.")
    runner: str = option(
        "auto",
        "What runs models: eager (transformers), openvino, openvino-gpu (Intel's), graph (CUDA graphs), or "
        "auto: on a processor the faster of the first two, measured once; else eager.",
        choices=RUNNERS,
    )
    weights: str = option(
        "auto",
        "Bits that the target's weights are kept in: the dtype's; on openvino also int8, int4, or file, "
        "those of a GGUF file, which auto takes in bfloat16.",
        choices=WEIGHTS,
    )
    foreign: str = option(
        "intersection",
        "How a draft of another vocabulary drafts: shared tokens, or text encoded anew.",
        choices=("intersection", "string"),
    )
    draft_device: str | None = option(None, "Device of the draft model, if not that of the target.")
    draft_dtype: str | None = option(None, "Dtype of the draft model, if not that of the target.")
    draft_runner: str | None = option(
        None, "Runner of the draft model, if not that of the target.", choices=RUNNERS
    )
    draft_weights: str | None = option(
        None,
        "Bits of the draft model's weights, as for --weights; by default int8 where openvino runs it.",
        choices=WEIGHTS,
    )
    threads: int | None = option(
        None, "Processor threads; by default all cores that this process may use."
    )

    def __post_init__(self) -> None:
        _settle(self)

    @property
    def drafter(self) -> str:
        """What drafts, named or by default."""
        return self.draft or (
            f"{MIXED}:{ITS_DRAFT}" if self.target == DEFAULT_TARGET else OTHERWISE
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateOptions:
    """What to write and how to sample. Temperature 0, the default, is greedy."""

    tokens: int = option(128, "Most tokens to write.")
    k: int | str | None = option(
        None,
        "Tokens to guess in a round, or auto: as many as promise to pay, by costs that are measured once. "
        "By default auto; with another rule than match, where a seed is to repeat a text, 3 with a draft "
        "model and 8 without.",
        "-k",
        "--num-speculative-tokens",
    )
    raw: bool = option(False, "Take the prompt as it is, without the chat template.")
    temperature: float = option(0.0, "Sampling temperature; 0 is greedy.")
    top_k: int = option(0, "Sample from so many likeliest tokens; 0: from all.")
    top_p: float = option(1.0, "Sample from the likeliest tokens of this total probability.")
    min_p: float = option(0.0, "Leave out tokens less likely than this times the likeliest.")
    repetition_penalty: float = option(
        1.0, "Penalty on tokens of prompt and output; above 1 discourages."
    )
    presence_penalty: float = option(0.0, "Penalty on tokens that the output has.")
    frequency_penalty: float = option(0.0, "Penalty on tokens by how often the output has them.")
    logit_bias: tuple[tuple[int, float], ...] = option(
        (), "Added to the logit of a token id; repeatable."
    )
    banned_words: tuple[str, ...] = option(
        (), "Words whose usual tokens are never completed.", "--banned-word"
    )
    no_repeat_ngram: int = option(0, "Let no run of so many tokens occur twice; 0: off.")
    min_tokens: int = option(0, "Fewest tokens to write before a stop.")
    stop: tuple[str, ...] = option((), "Text to stop before.")
    stop_ids: tuple[int, ...] = option((), "Token ids to stop at.", "--stop-id")
    ignore_eos: bool = option(False, "Write on past the end token.")
    seed: int | None = option(None, "Seed of sampling; a fresh one each time if not given.")
    rule: str = option("match", "Acceptance rule.", choices=("match", "rejection", "block"))

    def __post_init__(self) -> None:
        _settle(self)
        if self.tokens < 1:
            raise OptionError(f"tokens is {self.tokens}: give 1 or more")
        if isinstance(self.k, str) and self.k != AUTO:
            raise OptionError(f"k is {self.k!r}: give a number, or {AUTO}")
        if isinstance(self.k, int) and self.k < 0:
            raise OptionError(f"k is {self.k}: give 0 or more, or {AUTO}")
        if self.min_tokens > self.tokens:
            raise OptionError(f"min_tokens is {self.min_tokens}, more than tokens, {self.tokens}")
        if "" in self.stop:
            raise OptionError("a stop string is empty and would stop at once: leave it out")
        self.sampling  # noqa: B018 - raises for a value out of range

    @property
    def sampling(self) -> "SamplingOptions":
        """The options of sampling, banned words apart: those need a tokenizer."""
        from draftwise.core.sampling import SamplingOptions  # torch, which help does not need

        names = [f.name for f in fields(SamplingOptions) if f.name != "banned_words"]
        return SamplingOptions(**{name: getattr(self, name) for name in names})


def _settle(options: object) -> None:
    """Hold every field to its type and choices; lists become tuples, and a lone text a tuple of one."""
    hints = get_type_hints(type(options))
    for f in fields(options):  # pyright: ignore[reportArgumentType]
        hint, value = hints[f.name], getattr(options, f.name)
        if get_origin(hint) is tuple:
            value = _as_tuple(value)
            object.__setattr__(options, f.name, value)
        if not _fits(value, hint):
            raise OptionError(f"{f.name} is {value!r}: {f.metadata['help'].rstrip('.')}")
        choices = f.metadata["choices"]
        if choices and value not in (*choices, f.default):
            raise OptionError(f"{f.name} is {value!r}: give one of {', '.join(choices)}")


def _as_tuple(value: Any) -> Any:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, Mapping):
        return tuple(value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return tuple(tuple(item) if isinstance(item, list) else item for item in value)
    return value


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a type as options have them; no bool for a number, no broken text."""
    if get_origin(hint) is tuple:
        inner = get_args(hint)
        items = (
            inner[:1] * len(value) if isinstance(value, tuple) and inner[-1:] == (...,) else inner
        )
        return (
            isinstance(value, tuple)
            and len(value) == len(items)
            and all(_fits(item, kind) for item, kind in zip(value, items, strict=True))
        )
    if isinstance(hint, UnionType):
        return any(_fits(value, kind) for kind in get_args(hint))
    if hint is str:
        return isinstance(value, str) and _is_text(value)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, hint) and (hint is bool or not isinstance(value, bool))


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


Options = TypeVar("Options", ModelOptions, GenerateOptions)


def make(kind: type[Options], given: Mapping[str, Any], ready: Options | None = None) -> Options:
    """Build options from names and values, on top of those that are ready.

    An unknown name is an error that names the nearest.
    """
    known = [f.name for f in fields(kind)]
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise OptionError(f"there is no option {name}: {hint}")
    return kind(**given) if ready is None else replace(ready, **given)
