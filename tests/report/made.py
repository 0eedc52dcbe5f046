"""Records as a bench might write them, made without a model: every number follows from a few costs."""

from dataclasses import dataclass
from random import Random

from draftwise.core.counters import RoundCount
from draftwise.measure.records import (
    PLAIN,
    AdviceRecord,
    AgreementRecord,
    Choice,
    Conditions,
    Foresight,
    NestingRecord,
    PassesRecord,
    Prediction,
    PromptRef,
    RoundRecord,
    RunRecord,
)

CONDITIONS = Conditions(
    target="qwen2.5-coder-1.5b",
    machine="4-core test machine",
    threads=4,
    settings={"device": "cpu", "dtype": "bfloat16"},
    versions={"draftwise": "0.1.0", "torch": "2.13.0", "python": "3.12.1"},
)
ALPHAS = {"prose": 0.55, "code": 0.85, "repetition": 0.97, "question and answer": 0.65}
TOKENS, LONGEST = 96, 16


@dataclass(frozen=True)
class Drafter:
    """A name, milliseconds a token, and by how much it is better or worse a guesser than ALPHAS."""

    name: str
    ms: float
    better: float = 0.0
    passes_per_token: int = 1


SMALL = Drafter("smollm2-135m", ms=45)
LARGE = Drafter("smollm2-360m", ms=95, better=0.04)
LOOKUP = Drafter("lookup", ms=0.02, better=-0.3, passes_per_token=0)


def read_ms(n: int) -> float:
    """A pass of the target over n tokens: flat at first, then dearer."""
    return 250 + max(n - 8, 0) * 12


def prompt(workload, index=0, text="Write <b>one</b> & more"):
    return PromptRef(
        workload=workload,
        index=index,
        sha256=PromptRef.digest(tuple(f"{workload} {index}".encode())),
        tokens=20,
        text=text,
    )


def agreement(drafter, workload, index=0, alpha=None, conditions=CONDITIONS):
    """What a drafter proposes, right with probability alpha at each position."""
    alpha = min(ALPHAS[workload] + drafter.better, 1) if alpha is None else alpha
    random = Random(f"{drafter.name} {workload} {index}")
    ids = tuple(range(TOKENS))
    proposals = []
    for position in ids:
        tokens = []
        for token in ids[position : position + LONGEST]:
            tokens.append(token if random.random() < alpha else token + 1000)
            if tokens[-1] != token:
                break
        proposals.append(Foresight(tokens=tuple(tokens), drafted=LONGEST))
    return AgreementRecord(
        conditions=conditions,
        drafter=drafter.name,
        prompt=prompt(workload, index),
        seed=0,
        token_ids=ids,
        max_tokens=TOKENS,
        foresight=tuple(proposals),
        longest=LONGEST,
        passes_per_token=drafter.passes_per_token,
    )


def passes(drafter=None, context=128, conditions=CONDITIONS):
    """Timings of the target, or of a drafter, with a spread of 2 %."""
    lengths = (1, 2, 4, 8, 12, 16, 17, 24, 32)
    cost = read_ms if drafter is None else lambda n: n * drafter.ms
    return PassesRecord(
        conditions=conditions,
        drafter=drafter and drafter.name,
        context=context,
        samples_ms={
            n: tuple(
                cost(n) * (1 + context / 8000) * noise for noise in (0.98, 0.99, 1, 1.01, 1.02)
            )
            for n in lengths
        },
    )


def run(counts, drafter=None, k=0, workload="code", index=0, repeat=0, **given):
    """A run of such rounds, at the costs of the drafter; a plain one without a drafter."""
    rounds = tuple(
        RoundRecord(
            drafted=count.drafted,
            accepted=count.accepted,
            emitted=count.emitted,
            draft_passes=count.draft_passes,
            draft=count.drafted * drafter.ms / 1000 if drafter else 0.0,
            verify=read_ms(count.drafted + 1) / 1000 * (1 + 0.02 * repeat),
            rest=0.004,
        )
        for count in counts
    )
    fields = {
        "conditions": CONDITIONS,
        "drafter": drafter.name if drafter else PLAIN,
        "k": k,
        "prompt": prompt(workload, index),
        "repeat": repeat,
        "seed": 0,
        "token_ids": tuple(range(sum(count.emitted for count in counts))),
        "finish_reason": "length",
        "prefill": 0.3,
        "rounds": rounds,
        "identical": "identical" if drafter else "not compared",
    }
    return RunRecord(**fields | given)


def plain(num=TOKENS, **given):
    """A plain run."""
    return run([RoundCount(0, 0, 1)] * num, **given)


def advice(**given):
    """An advice to speculate."""
    choice = Choice(
        drafter=SMALL.name,
        k=3,
        speedup=1.31,
        low=1.18,
        high=1.44,
        tokens_per_round=2.1,
        alpha=0.7,
        c=0.18,
        v=1.0,
        o=0.02,
        share_drafted=1.0,
        break_even_alpha=0.45,
    )
    fields = {
        "conditions": CONDITIONS,
        "verdict": "do",
        "best": choice,
        "choices": (choice,),
        "reasons": ("guesses are cheap",),
        "notes": ("both models fit into memory",),
        "plain_tokens_per_second": 3.9,
        "exports": {"vLLM": "vllm serve --speculative-config '{\"k\": 3}' <model>"},
    }
    return AdviceRecord(**fields | given)


def nesting(text="The capital of France is"):
    """A text, whose every prefix was predicted twice."""
    words = text.split()
    return NestingRecord(
        conditions=CONDITIONS,
        text=text,
        predictions=tuple(
            Prediction(
                prefix=" ".join(words[: n + 1]),
                token=f" <{n}>",
                alone=f" <{n}>",
                same=True,
                difference=0.0,
            )
            for n in range(len(words))
        ),
        shortened=3,
        shortened_difference=0.0,
    )


def bench(drafters=(SMALL, LARGE, LOOKUP), workloads=tuple(ALPHAS), ks=(1, 3, 5, 8, 16)):
    """What a bench leaves behind: two prompts and two repeats of everything."""
    from draftwise.measure.replay import replay

    records = [passes(), passes(context=1024), *(passes(drafter) for drafter in drafters)]
    pairs = [(workload, index) for workload in workloads for index in (0, 1)]
    known = {(d, *pair): agreement(d, *pair) for d in drafters for pair in pairs}
    records += known.values()
    for workload, index in pairs:
        for repeat in (0, 1):
            where = {"workload": workload, "index": index, "repeat": repeat}
            records.append(plain(**where))
            for drafter in drafters:
                for k in ks if workload == workloads[0] else (5,):
                    counts = replay(known[drafter, workload, index], k)
                    records.append(run(counts, drafter, k, pieces=PIECES, **where))
    return records


PIECES = (
    ("def", "correction"),
    (" mul(a, b", "accepted"),
    ("):\n", "bonus"),
    ("    return a", "accepted"),
    (" *", "correction"),
    (" b  # <script>alert('no')</script>\n", "accepted"),
    ("end", "plain"),
)


def everything():
    """Records for every section."""
    return [*bench(), advice(), nesting()]
