"""A block ends inside itself: everything is cut at one token, wherever in the block it stands.

The target writes the alphabet, a letter a token, so that a test knows every text beforehand.
"""

import itertools

import pytest
import torch

from draftwise.core.clock import FakeClock, PhaseTimer
from draftwise.decoding.generation import Generation
from draftwise.decoding.speculative import speculative
from draftwise.drafters.model import DraftModel
from draftwise.drafters.none import NoDraft
from draftwise.models.eager import EagerRunner
from draftwise.models.row import Row
from draftwise.testing.scripted import ScriptedDrafter
from draftwise.testing.toys import chain_model, table_model
from tests.decoding.rig import KS, Says, letters, plain, request, speculate, tokens_of

SIZE = 26
ALPHABET = list(range(SIZE))
RUNNER = EagerRunner(chain_model(ALPHABET, SIZE))
ROW = Row(RUNNER)
DRAFTS = {
    "right": ScriptedDrafter(ALPHABET, 1.0, vocab_size=SIZE),
    "half right": ScriptedDrafter(ALPHABET, 0.5, vocab_size=SIZE, seed=3),
    "short": ScriptedDrafter(ALPHABET, 0.9, vocab_size=SIZE, shortfall=0.5),
    "self": DraftModel(RUNNER, "self").open(),
    "none": NoDraft(),
}


def write(prompt="a", draft="right", **options):
    options = {"vocab_size": SIZE, "max_tokens": 12} | options
    return speculate(request(tokens_of(prompt), **options), ROW, DRAFTS[draft])


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("k", KS)
def test_an_end_token_ends_the_request_at_any_place_of_a_block(k, draft):
    for end in "bcdefghij":
        run = write(k=k, draft=draft, end_ids=tokens_of(end))
        assert letters(run.token_ids) == "bcdefghij"[: "bcdefghij".index(end) + 1]
        assert run.text == letters(run.token_ids)
        assert run.finish_reason == "stop"
        assert run.rounds[-1].matched == tokens_of(end)[0]
        assert run.counters.emitted == len(run.leading) == len(run.token_ids)


@pytest.mark.parametrize(("end", "place"), [("b", 0), ("c", 1), ("d", 2), ("e", 3)])
def test_the_first_middle_and_last_draft_token_and_the_bonus_all_end_it(end, place):
    run = write(k=3, end_ids=tokens_of(end))
    (only,) = run.rounds
    assert (only.count.drafted, only.count.accepted, only.count.emitted) == (3, 3, place + 1)


def test_of_several_end_and_stop_tokens_the_first_one_written_counts():
    run = write(k=8, end_ids=tokens_of("hd"), stop_ids=tokens_of("fe"))
    assert (run.text, run.rounds[-1].matched) == ("bcd", tokens_of("d")[0])


def test_without_end_tokens_the_text_goes_on_to_its_length():
    assert write(end_ids=(), max_tokens=20).text == "bcdefghijklmnopqrstu"


@pytest.mark.parametrize("k", KS)
def test_a_drafted_end_token_that_the_target_rejects_stops_nothing(k):
    (end,) = tokens_of("z")
    session = Says(lambda ids, k: [end] * k)
    run = speculate(request([0], vocab_size=SIZE, k=k, max_tokens=9, end_ids=[end]), ROW, session)
    assert (run.text, run.finish_reason, run.counters.accepted) == ("bcdefghij", "length", 0)


def test_a_draft_model_drafts_on_behind_an_end_token_of_its_own():
    end, k = 25, 5
    following = torch.zeros(SIZE, SIZE)
    following[:, end] = 10.0  # writes nothing but end tokens
    session = DraftModel(EagerRunner(table_model(following)), "ends at once").open()
    run = speculate(request([0], vocab_size=SIZE, k=k, max_tokens=9, end_ids=[end]), ROW, session)
    assert run.text == "bcdefghij"
    assert [r.count.drafted for r in run.rounds] == [5, 5, 5, 5, 4, 3, 2, 1, 0]


def two_letters_a_token(ids):
    return "".join(letters([2 * token % SIZE, (2 * token + 1) % SIZE]) for token in ids)


@pytest.mark.parametrize("k", [1, 3, 8])
@pytest.mark.parametrize("draft", ["right", "half right", "none"])
def test_a_stop_string_is_found_wherever_it_begins_and_ends(k, draft):
    whole = two_letters_a_token(range(1, 9))  # "cdefghijklmnopqr"
    for begin, length in itertools.product(range(len(whole) - 4), (1, 2, 3, 4)):
        stop = whole[begin : begin + length]
        run = write(k=k, draft=draft, decode=two_letters_a_token, stop_strings=[stop], max_tokens=8)
        assert run.text == whole[:begin]
        assert len(run.token_ids) == (begin + length + 1) // 2  # with the token that completes it
        assert (run.finish_reason, run.rounds[-1].matched) == ("stop", stop)
        assert run.counters.emitted == len(run.token_ids)


def test_a_stop_string_never_matches_in_the_prompt_nor_begins_there():
    assert write("abc", stop_strings=["b", "bc", "cd"], max_tokens=4).text == "defg"


PIECES = ["<", "xa", "b", "ab", "a", "bd", "e"]


def in_pieces(ids):
    return "".join(PIECES[token] for token in ids)


@pytest.mark.parametrize("k", KS)
def test_a_false_start_is_delivered_later_and_in_order(k):
    run = write(k=k, decode=in_pieces, stop_strings=["abd"], max_tokens=6)
    assert run.text == "xabab"
    assert run.rounds[-1].matched == "abd"
    assert write(k=k, decode=in_pieces, stop_strings=["abc"], max_tokens=6).text == "xabababde"


@pytest.mark.parametrize("k", KS)
@pytest.mark.parametrize("ending", [{"max_tokens": 4}, {"end_ids": [4]}, {"stop_ids": [4]}])
def test_a_false_start_at_the_very_end_is_delivered_too(k, ending):
    options = {"max_tokens": 6} | ending
    run = write(k=k, decode=in_pieces, stop_strings=["abababc"], **options)
    assert run.text == "xababa"


@pytest.mark.parametrize("k", KS)
def test_nothing_is_held_back_that_cannot_start_a_stop_string(k):
    stop = "abd"
    run = write(k=k, draft="half right", decode=in_pieces, stop_strings=[stop], max_tokens=6)
    ids, delivered = [], ""
    for round_ in run.rounds[:-1]:
        ids += round_.tokens
        delivered += round_.text
        written = in_pieces(ids)
        held = max(n for n in range(3) if n == 0 or stop.startswith(written[-n:]))
        assert delivered == written[: len(written) - held]


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("k", KS)
def test_the_number_of_tokens_is_exact(k, draft):
    for max_tokens in range(1, 14):
        run = write(k=k, draft=draft, max_tokens=max_tokens)
        assert letters(run.token_ids) == "bcdefghijklmnopq"[:max_tokens]
        assert (run.finish_reason, run.rounds[-1].matched) == ("length", None)


@pytest.mark.parametrize("k", KS)
def test_a_stop_within_the_budget_beats_the_length(k):
    assert write(k=k, end_ids=tokens_of("e"), max_tokens=4).finish_reason == "stop"
    assert write(k=k, end_ids=tokens_of("e"), max_tokens=3).finish_reason == "length"
    assert write(k=k, stop_strings=["e"], max_tokens=4).text == "bcd"


def never(*args):
    raise AssertionError("the draft was called")


@pytest.mark.parametrize("options", [{"max_tokens": 1, "k": 5}, {"max_tokens": 6, "k": 0}])
def test_where_nothing_can_be_drafted_the_drafter_is_never_called(options):
    session = Says(never)
    run = speculate(request([0], vocab_size=SIZE, **options), ROW, session)
    assert run.text == "bcdefg"[: options["max_tokens"]]
    assert session.calls == 0


@pytest.mark.parametrize("k", KS)
@pytest.mark.parametrize("draft", ["right", "self", "none"])
def test_minimum_lengths_are_counted_in_tokens_not_in_rounds(k, draft):
    for least in range(9):
        options = {"end_ids": tokens_of("d"), "min_tokens": least}
        run = write(k=k, draft=draft, **options)
        reference = plain(request([0], vocab_size=SIZE, max_tokens=12, **options), ROW)
        assert run.token_ids == reference.token_ids
        assert (run.text == "bcd") == (least < 3)  # the least comes before an end token
        stopped = write(k=k, draft=draft, stop_ids=tokens_of("bdg"), min_tokens=least)
        assert len(stopped.token_ids) == next((n for n in (1, 3, 6) if n >= least), 12)
        assert write(k=k, draft=draft, stop_strings=["d", "g"], min_tokens=least).text == (
            "bc" if least <= 3 else "bcdef" if least <= 6 else "bcdefghijklm"
        )


@pytest.mark.parametrize("k", KS)
def test_ids_text_scores_and_processor_states_are_cut_at_the_same_token(k):
    asked = request(
        [0], vocab_size=SIZE, k=k, max_tokens=12, end_ids=tokens_of("f"), presence_penalty=0.5,
        repetition_penalty=1.1,
    )  # fmt: skip
    generation = Generation(asked)
    rounds = list(
        speculative(generation, ROW, DRAFTS["right"], PhaseTimer(FakeClock(), lambda: None))
    )
    assert letters(generation.ids) == "abcdef"
    expected = asked.sampler.start(asked.prompt)
    for token in tokens_of("bcdef"):
        expected = expected.advance(token)
    for state, right in zip(generation.sampling.states, expected.states, strict=True):
        assert torch.equal(state, right)
    assert sum(len(r.leading) for r in rounds) == sum(len(r.origins) for r in rounds) == 5


@pytest.mark.parametrize("k", KS)
def test_a_request_that_follows_a_cut_block_finds_good_caches(k):
    for end in "bcdefg":
        first = write(k=k, draft="self", end_ids=tokens_of(end))
        ids = tokens_of("a" + first.text)
        again = speculate(request(ids, vocab_size=SIZE, k=k, max_tokens=5), ROW, DRAFTS["self"])
        assert letters(ids + again.token_ids) == letters(ALPHABET)[: len(ids) + 5]
