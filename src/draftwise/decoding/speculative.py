"""The loop: a generator of rounds. Propose, verify, commit.

Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1. The target's cache and the draft's follow one
rule, that a cache holds a prefix of the sequence, so there is no rollback to be seen here: a row crops
what is no longer true when it is next read. For the same reason the loop may be left at any point, by
closing the generator or by an exception, and its rows stay good for the next request.
"""

from collections.abc import Generator

from draftwise.core.clock import PhaseTimer
from draftwise.core.lookahead import Lookahead
from draftwise.core.proposals import DeviceTokens, Proposal
from draftwise.decoding.generation import Generation
from draftwise.decoding.round import Round
from draftwise.drafters.drafter import DraftSession
from draftwise.models.row import Row


def speculative(
    generation: Generation, target: Row, drafter: DraftSession, timer: PhaseTimer
) -> Generator[Round]:
    """Write until a stop condition is met, up to k + 1 tokens a round.

    Prefill reads all but the last prompt token and emits nothing. Where nothing can be drafted, the
    drafter is never called.
    """
    with timer.running(), timer.phase("prefill"):
        target.prefill(generation.ids[:-1])
        if generation.draft_limit > 0:
            drafter.prefill(generation.ids[:-1])
    while not generation.finished:
        before = timer.times()
        with timer.running():
            proposed = _propose(generation, drafter, timer)
            proposal = _worth_checking(generation.lookahead, proposed)
            with timer.phase("verify"):
                logits = target.logits_behind(generation.ids, proposal.tokens)
            round_ = generation.judge(logits, proposal)
            generation.lookahead.learn(proposed, round_.tokens)
        yield round_.timed(timer.times() - before)


def _worth_checking(lookahead: Lookahead, proposal: Proposal) -> Proposal:
    """A proposal that cost nothing may be longer than what is worth checking of it."""
    if proposal.passes or not proposal.tokens:
        return proposal
    return proposal.first(lookahead.keep(proposal))


def _propose(generation: Generation, drafter: DraftSession, timer: PhaseTimer) -> Proposal:
    """Ask for as many tokens as are worth drafting; none needs no drafter."""
    k = generation.draft_limit
    if k <= 0:
        return Proposal()
    with timer.phase("draft"):
        proposal = drafter.propose(
            generation.ids,
            k,
            generation.sampling,
            generation.randomness,
            generation.lookahead.goes_on,
        )
    if len(proposal.tokens) > k:
        raise ValueError(f"asked for {k} tokens, the drafter proposed {len(proposal.tokens)}")
    if isinstance(proposal.tokens, DeviceTokens):  # chosen from rows of the vocabulary
        return proposal
    vocab_size = generation.request.sampler.vocab_size
    for token in proposal.tokens:
        if not 0 <= token < vocab_size:
            raise ValueError(f"the drafter proposed {token}: ids go from 0 to {vocab_size - 1}")
    return proposal
