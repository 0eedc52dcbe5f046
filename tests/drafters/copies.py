"""What the tests of suffix decoding share: a text in letters, and what is copied behind it."""

from draftwise.core.noise import KeyedNoise
from draftwise.drafters.suffix import SuffixDrafter
from tests.decoding.rig import letters, request, tokens_of


def proposed(text, k=4, session=None, vocab_size=26, **options):
    ids = tokens_of(text) if isinstance(text, str) else text
    session = session or SuffixDrafter(**options).open()
    state = request(ids or [0], vocab_size=vocab_size).sampler.start(ids)
    return session.propose(ids, k, state, KeyedNoise(1))


def copied(text, k=4, **options):
    return letters(proposed(text, k, **options).tokens)


def answer(session, prompt, text):
    """Have a session read a request and its answer, two tokens a round."""
    ids = list(prompt)
    session.prefill(ids[:-1])
    for start in range(0, len(text) + 1, 2):
        proposed(ids + text[:start], session=session)


def in_order(array):
    pasts = [array._past(place) for place in array._places]
    return pasts == sorted(pasts) and sorted(array._places) == list(range(len(array.tokens)))
