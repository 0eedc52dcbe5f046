"""The loop without models: any drafter and any lookahead on a text that the target has written.

`measure.replay` knows fixed k alone. Here the drafter's own code proposes, a policy decides, and the text
says what the target would have said; a draft model is played back from its recorded agreement. Counts are
those of the loop, so that policies can be judged on a frozen table of costs, the same on every machine.
"""

from collections.abc import Sequence

from draftwise.core.counters import RoundCount
from draftwise.core.lookahead import GoesOn, Lookahead
from draftwise.core.noise import KeyedNoise, Randomness
from draftwise.core.prefix import common_prefix
from draftwise.core.proposals import Proposal
from draftwise.core.sampling import Sampler, SamplingOptions, SamplingState
from draftwise.drafters.drafter import DraftSession, Stateless
from draftwise.measure.records import AgreementRecord


class Recorded(Stateless):
    """A draft model played back, for the text of one record.

    The record must have been made with branches: a draft model does not know that a guess is wrong.
    """

    usual_k = 3
    adapts = False

    def __init__(self, record: AgreementRecord) -> None:
        self.name = record.drafter
        self._record = record
        self._prompt = record.prompt.tokens

    def propose(
        self,
        ids: list[int],
        k: int,
        sampling: SamplingState,
        randomness: Randomness,
        goes_on: GoesOn | None = None,
    ) -> Proposal:
        """What was recorded for this position of the text, as far as asked for."""
        foresight = self._record.foresight[len(ids) - self._prompt]
        confidence, num = foresight.confidence or (), 0
        while num < min(k, len(foresight.tokens)) and (
            goes_on is None or goes_on(confidence[:num])
        ):
            num += 1
        return Proposal(foresight.tokens[:num], None, num, None, tuple(confidence[:num]))


def simulate(
    prompt: Sequence[int],
    written: Sequence[int],
    max_tokens: int,
    session: DraftSession,
    lookahead: Lookahead,
    vocab_size: int,
) -> list[RoundCount]:
    """The rounds in which `written` is written, greedily, behind the ids of a prompt."""
    sampling = Sampler(SamplingOptions(), vocab_size=vocab_size).start(prompt)
    noise, rounds, ids = KeyedNoise(0), [], list(prompt)
    end = len(prompt) + len(written)
    while len(ids) < end:
        position = len(ids) - len(prompt)
        limit = min(lookahead.limit(), max_tokens - position - 1)
        proposed = (
            session.propose(ids, limit, sampling, noise, lookahead.goes_on)
            if limit > 0
            else Proposal()
        )
        kept = proposed
        if proposed.tokens and not proposed.passes:
            kept = proposed.first(lookahead.keep(proposed))
        accepted = common_prefix(list(kept.tokens), list(written[position:]))
        emitted = list(written[position : position + accepted + 1])
        lookahead.learn(proposed, emitted)
        rounds.append(RoundCount(len(kept.tokens), accepted, len(emitted), proposed.passes))
        ids += emitted
    return rounds
