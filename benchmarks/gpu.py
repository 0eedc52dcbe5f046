"""What graphs buy on a GPU, beside transformers, with random weights of Qwen2.5's 7B and 0.5B shapes.

    python benchmarks/gpu.py                         # under ten minutes; writes gpu.json
    python benchmarks/gpu.py --tiny --device cpu     # the script itself, in seconds

Random models agree on nothing. So for the clock they are told what to say: on the device, in every engine
alike, so much is added to one logit at each position that it wins. The target is told a text, the draft
model the same with the scripted drafter's errors. All engines then do the same rounds, and no part of a
pass is left out. For the check of identity the target is told nothing: its own arithmetic decides.
"""

import argparse
import json
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import transformers
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from transformers import AutoModelForCausalLM, PreTrainedModel, Qwen2Config

from draftwise.core.clock import SystemClock
from draftwise.core.noise import KeyedNoise
from draftwise.core.sampling import Sampler, SamplingOptions
from draftwise.core.stopping import StopConditions
from draftwise.core.timing import time_in_turns
from draftwise.decoding.generation import Request
from draftwise.decoding.proof import Identity, prove
from draftwise.decoding.run import Run
from draftwise.drafters.model import DraftModel
from draftwise.models.devices import describe_machine, pick_device, synchronizer
from draftwise.models.eager import EagerRunner
from draftwise.models.graph import GraphRunner
from draftwise.models.row import Row
from draftwise.testing.scripted import ScriptedDrafter

SHAPES: dict[str, dict[str, Any]] = {
    "target": {
        "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
        "num_attention_heads": 28, "num_key_value_heads": 4, "tie_word_embeddings": False,
    },
    "draft": {
        "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
        "num_attention_heads": 14, "num_key_value_heads": 2, "tie_word_embeddings": True,
    },
}  # fmt: skip
TINY: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2,
}  # fmt: skip
VOCAB_SIZE, TINY_VOCAB_SIZE = 151_936, 512
RUNNERS = {"eager": EagerRunner, "graph": GraphRunner}
LOUD = 1000.0


class Told:
    """A model that says a given text, by position; until it is given one, it speaks for itself.

    called: its passes, but for those that a graph repeats.
    """

    def __init__(self, model: PreTrainedModel, longest: int) -> None:
        self.model = model
        self.called = 0
        self._text = torch.zeros(longest, dtype=torch.int64, device=model.device)
        self._loudness = torch.zeros(1, 1, 1, dtype=model.dtype, device=model.device)
        model.register_forward_hook(self._speak, with_kwargs=True)

    def say(self, text: list[int]) -> None:
        """Say this text from now on; behind its end, token 0. Nothing: its own words."""
        self._text.zero_()[: len(text)] = torch.tensor(text, device=self._text.device)
        self._loudness.fill_(LOUD if text else 0.0)

    def _speak(self, model: object, args: object, kwargs: Mapping, output) -> None:
        """Kernels over fixed addresses only: a graph captures it with the rest of the pass."""
        self.called += 1
        positions, keep = kwargs["position_ids"], kwargs.get("logits_to_keep", 0)
        kept = positions[:, keep] if isinstance(keep, Tensor) else positions[:, -keep:]
        said = self._text[kept + 1][..., None]
        output.logits.scatter_add_(-1, said, self._loudness.expand(said.shape))


@dataclass
class Bench:
    """Both models, each behind both runners, and what they are asked for."""

    target: Told
    draft: Told
    text: list[int]
    errors: list[int]
    request: Request

    def __post_init__(self) -> None:
        self.targets = {kind: make(self.target.model) for kind, make in RUNNERS.items()}
        self.drafts = {kind: make(self.draft.model) for kind, make in RUNNERS.items()}
        self.synchronize = synchronizer(self.target.model.device)

    def run(self, kind: str, speculative: bool) -> Run:
        """A whole run, prefill included, as a first request has it."""
        with ExitStack() as stack:
            row = stack.enter_context(Row(self.targets[kind]))
            session = None
            if speculative:
                session = DraftModel(self.drafts[kind], "draft").open()
                stack.callback(session.close)
            return Run(self.request, row, session, SystemClock()).finish()

    def generate(self, assisted: bool) -> list[int]:
        """The same by transformers."""
        ids = torch.tensor([self.request.prompt], device=self.target.model.device)
        written = self.target.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            assistant_model=self.draft.model if assisted else None,
            do_sample=False,
            max_new_tokens=self.request.token_limit,
            pad_token_id=0,
        )
        return written[0, ids.shape[1] :].tolist()


def main(arguments: list[str] | None = None) -> None:
    """Measure, print and write."""
    options = parse(arguments)
    bench = build(options)
    found = {
        "conditions": conditions(options),
        "identity": identity(bench, options),
        **passes(bench, options),
        **runs(bench, options),
    }
    options.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    show(found, options.k)
    if any(each["fault"] for each in found["identity"].values()):
        raise SystemExit("graphs write another text than the eager runner, and rounding is not why")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Options from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--tiny", action="store_true", help="tiny models, for a try without a GPU")
    parser.add_argument("-k", type=int, default=4)
    parser.add_argument("--accuracy", type=float, default=0.8, help="of the draft, token by token")
    parser.add_argument("--prompt", type=int, default=256, help="tokens of the prompt")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path, default=Path("gpu.json"))
    return parser.parse_args(arguments)


def build(options: argparse.Namespace) -> Bench:
    """Make the models, and a text for them to write."""
    device = pick_device(options.device)
    vocab_size = TINY_VOCAB_SIZE if options.tiny else VOCAB_SIZE
    length = options.prompt + options.tokens
    torch.manual_seed(0)
    told = {}
    for name, shape in SHAPES.items():
        config = Qwen2Config(**shape | (TINY if options.tiny else {}), vocab_size=vocab_size)
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        with device:
            model = AutoModelForCausalLM.from_config(config, dtype=dtype)
        told[name] = Told(model.eval().requires_grad_(False), length + 64)
    drafting = told["draft"].model.generation_config
    drafting.num_assistant_tokens = options.k
    drafting.num_assistant_tokens_schedule = "constant"
    drafting.assistant_confidence_threshold = 0.0
    text = torch.randint(vocab_size, (length,)).tolist()
    request = Request(
        prompt=tuple(text[: options.prompt]),
        sampler=Sampler(SamplingOptions(), vocab_size=vocab_size),
        stop=StopConditions(max_tokens=options.tokens),
        decode=lambda ids: "",
        seed=0,
        k=options.k,
    )
    return Bench(**told, text=text, errors=with_errors(text, options, request), request=request)


def with_errors(text: list[int], options: argparse.Namespace, request: Request) -> list[int]:
    """The text as the scripted drafter would have it."""
    scripted = ScriptedDrafter(text, options.accuracy, vocab_size=request.sampler.vocab_size)
    said = scripted.propose(text[:1], len(text), request.sampler.start(()), KeyedNoise(0))
    return [text[0], *said.tokens]


def conditions(options: argparse.Namespace) -> dict[str, object]:
    """What was asked for, and on what it runs."""
    asked = {name: value for name, value in vars(options).items() if name != "output"}
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    return asked | versions | {"machine": describe_machine(), "cuda": torch.version.cuda}


def identity(bench: Bench, options: argparse.Namespace) -> dict[str, object]:
    """Whether graphs write what the eager runner writes, plainly and with the draft, or where they part."""
    bench.target.say([])
    plain = bench.run("eager", speculative=False)
    own = [*bench.request.prompt, *plain.token_ids]
    bench.draft.say(with_errors(own, options, bench.request))
    found = {}
    for name, speculative in (("graph plain", False), ("graph speculative", True)):
        run = bench.run("graph", speculative)
        found[name] = _told(prove(plain, run, bench.targets["graph"])) | asdict(run.counters)
    return found


def _told(identity: Identity) -> dict[str, object]:
    near_ties = sum(parting.near_tie for parting in identity.partings)
    return {"fault": identity.fault, "near_ties": near_ties}


def passes(bench: Bench, options: argparse.Namespace) -> dict[str, object]:
    """Milliseconds of passes and blocks behind the prompt, and what each of them launches."""
    bench.target.say(bench.text)
    bench.draft.say(bench.errors)
    prompt, state = list(bench.request.prompt), bench.request.sampler.start(())
    with ExitStack() as stack:
        work: dict[str, Callable[[], object]] = {}
        for kind in RUNNERS:
            row = stack.enter_context(Row(bench.targets[kind]))
            for n in (1, options.k + 1):
                ids = prompt + bench.text[len(prompt) :][:n]
                work[f"{kind} target {n}"] = partial(row.logits, ids, n)
            one = stack.enter_context(Row(bench.drafts[kind]))
            work[f"{kind} draft 1"] = partial(one.logits, prompt)
            session = DraftModel(bench.drafts[kind], "draft").open()
            stack.callback(session.close)
            work[f"{kind} block {options.k}"] = partial(
                session.propose, prompt, options.k, state, KeyedNoise(0)
            )
        samples = time_in_turns(work, 2 * options.repeats, SystemClock(), bench.synchronize)
        return {
            "pass_ms": {name: list(times) for name, times in samples.items()},
            "launches": {name: launches(each, bench.synchronize) for name, each in work.items()},
        }


def launches(work: Callable[[], object], synchronize: Callable[[], None]) -> dict[str, int]:
    """How often the host calls the device in one piece of work, and what the device does for how long."""
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as profiler:
        work()
        synchronize()
    events = profiler.events() or []
    called = Counter(event.name for event in events)
    on_device = [event for event in events if event.device_type.name == "CUDA"]
    return {
        "kernel launches": sum(n for name, n in called.items() if "LaunchKernel" in name),
        "graph launches": called["cudaGraphLaunch"],
        "copies": called["cudaMemcpyAsync"],
        "kernels": len(on_device),
        "busy us": round(sum(event.time_range.elapsed_us() for event in on_device)),
    }


def runs(bench: Bench, options: argparse.Namespace) -> dict[str, object]:
    """Whole texts in turns: seconds of each engine, and the rounds of the last speculative runs."""
    bench.target.say(bench.text)
    bench.draft.say(bench.errors)
    last: dict[str, Run] = {}
    passes: dict[str, int] = {}
    expected = bench.text[options.prompt :]

    def ours(kind: str, speculative: bool) -> None:
        run = bench.run(kind, speculative)
        if run.token_ids != expected:
            raise RuntimeError(f"the {kind} runner wrote another text")
        last[f"{kind} {'speculative' if speculative else 'plain'}"] = run

    def theirs(assisted: bool) -> None:
        before = bench.target.called
        if bench.generate(assisted) != expected:
            raise RuntimeError("transformers wrote another text")
        passes[f"transformers {'speculative' if assisted else 'plain'}"] = (
            bench.target.called - before
        )

    work = {
        "transformers plain": partial(theirs, False),
        "transformers speculative": partial(theirs, True),
        **{f"{kind} plain": partial(ours, kind, False) for kind in RUNNERS},
        **{f"{kind} speculative": partial(ours, kind, True) for kind in RUNNERS},
    }
    samples = time_in_turns(work, options.repeats, SystemClock(), bench.synchronize)
    return {
        "run_ms": {name: list(times) for name, times in samples.items()},
        "rounds": {name: asdict(run.counters) | run.times.as_dict() for name, run in last.items()},
        "target_passes": passes | {name: run.counters.target_passes for name, run in last.items()},
    }


def show(found: dict, k: int) -> None:
    """The tables."""
    print(found["conditions"]["machine"])
    for name, each in found["identity"].items():
        verdict = "FAULT" if each["fault"] else f"{each['near_ties']} near-ties"
        print(f"identity, {name} with eager plain: {verdict}")
    print(f"\n{'one pass':20}{'ms':>9}" + "".join(f"{name:>17}" for name in _COUNTS))
    ms = {name: median(times) for name, times in found["pass_ms"].items()}
    for name, time in ms.items():
        counts = "".join(f"{found['launches'][name][count]:17}" for count in _COUNTS)
        print(f"{name:20}{time:9.3f}{counts}")
    whole = {name: median(times) for name, times in found["run_ms"].items()}
    print(f"\n{'whole text':26}{'tokens/s':>9}{'x transformers plain':>22}{'target passes':>15}")
    for name, time in whole.items():
        speed = 1000 * found["conditions"]["tokens"] / time
        ratio, passes = whole["transformers plain"] / time, found["target_passes"][name]
        print(f"{name:26}{speed:9.1f}{ratio:22.2f}{passes:15}")
    for kind in RUNNERS:
        rounds = found["rounds"][f"{kind} speculative"]
        plain, num = ms[f"{kind} target 1"], rounds["rounds"]
        c, v = ms[f"{kind} block {k}"] / k / plain, ms[f"{kind} target {k + 1}"] / plain
        tau = rounds["emitted"] / num
        host, round_ms = (
            1000 * rounds["rest"] / num,
            1000 * (rounds["total"] - rounds["prefill"]) / num,
        )
        print(
            f"\n{kind}: c {c:.3f}, v({k + 1}) {v:.3f}, tau {tau:.2f}: predicted {tau / (k * c + v):.2f}x, "
            f"measured {whole[f'{kind} plain'] / whole[f'{kind} speculative']:.2f}x"
            f"\n  a round {round_ms:.2f} ms, of it {host:.2f} outside the passes ({host / plain:.1%} of one)"
        )


_COUNTS = ("kernel launches", "graph launches", "copies", "kernels", "busy us")

if __name__ == "__main__":
    main()
