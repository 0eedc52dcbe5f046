"""The suffix drafter: what followed most often, from the text and from earlier answers."""

from collections import Counter
from contextlib import suppress
from random import Random
from threading import Thread

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from draftwise.core.errors import OptionError
from draftwise.core.noise import KeyedNoise
from draftwise.drafters import suffix_array
from draftwise.drafters.copying import chance
from draftwise.drafters.suffix import SuffixDrafter
from draftwise.drafters.suffix_array import SuffixArray
from draftwise.drafters.suffix_memory import DEPTH, END, SuffixMemory
from tests.decoding.rig import letters, request, tokens_of

# Few different tokens, so that matches abound and patterns repeat.
TEXTS = st.lists(st.integers(0, 2), min_size=1, max_size=40)
ALL = 1000


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


def test_what_followed_the_same_words_is_proposed():
    assert copied("thecatsatonthe", k=3) == "cat"


def test_nothing_is_proposed_where_nothing_matches():
    assert copied("abcdef") == copied("") == copied("a") == copied("ab") == ""
    assert copied("abcab", k=0) == ""


def test_the_more_frequent_continuation_wins_over_the_more_recent_one():
    assert copied("qabxqabxqabyqab", k=1) == "x"


def test_of_equally_frequent_continuations_that_of_the_longer_match_wins_then_the_last():
    assert copied("qabxzabyqab", k=1) == "x"
    assert copied("abxabyab", k=1) == "y"


def test_a_short_match_of_many_places_wins_over_a_longer_one_of_a_single_place():
    """One place shares three tokens and says x; six share two of them and say y, and go on alike."""
    text = "qabx" + "abyhh" * 6 + "qab"
    assert copied(text, k=1) == "y"
    assert copied(text, k=3) == "yhh"
    assert copied("qabx" + "caby" + "qab", k=1) == "x"


@pytest.mark.parametrize("k", [1, 3, 7, 20])
def test_a_repeating_pattern_is_proposed_whole(k):
    assert copied("xyabcabcabcabc", k=k) == ("abc" * 7)[:k]
    assert copied("z" + "a" * 20, k=k) == "a" * k


def test_a_copy_from_one_place_is_as_long_as_its_match_allows():
    text = [*range(200)]
    for least, factor in ((0.2, 2.0), (0.5, 0.5)):
        for matched in (2, 4, 6):
            proposal = proposed(text + text[:matched], 99, least=least - 1e-9, vocab_size=200)
            assert len(proposal.tokens) == factor * matched
    assert proposed([1, 2, 3, 1, 2], least=1.0).tokens == ()


def test_confidence_is_the_tempered_frequency_of_each_token():
    proposal = proposed("abcdxabceyab", k=2, least=0.0)
    assert letters(proposal.tokens) == "ce"
    assert proposal.confidence == (chance(2, 2, 2, 0), chance(1, 2, 2, 1))


@given(st.integers(1, 50), st.integers(1, 50), st.integers(1, 20), st.integers(0, 20))
def test_a_chance_is_a_probability_and_grows_with_all_that_speaks_for_a_token(
    a, n, matched, copied
):
    agreeing = min(a, n)
    here = chance(agreeing, n, matched, copied)
    assert 0 < here < 1
    assert here < chance(agreeing + 1, n + 1, matched, copied)
    assert here < chance(agreeing, n, matched + 1, copied)
    assert here < chance(agreeing, n, matched, copied + 1)


def test_it_needs_no_passes_and_no_distribution():
    proposal = proposed("thecatsatonthe")
    assert (proposal.passes, proposal.q, proposal.note) == (0, None, None)


def test_ids_that_no_logit_stands_for_end_a_copy():
    image = 900
    assert proposed([1, 2, 3, image, 4, 1, 2], least=0.0).tokens == (3,)
    assert proposed([1, 2, image, 4, 1, 2], least=0.0).tokens == ()


@pytest.mark.parametrize("options", [{"places": 0}, {"least": -0.1}, {"least": 1.1}])
def test_settings_that_make_no_sense_are_refused(options):
    with pytest.raises(ValueError, match="no sense"):
        SuffixDrafter(**options)


def counted(texts, ids, k, least):
    """The same by counting, for each length of match, what followed it anywhere in the texts.

    texts: the sequence itself first, then earlier answers. Each continuation goes on from where those
    that agreed so far ended.
    """
    best = (0.0, ())
    for length in range(min(len(ids), DEPTH), 0, -1):
        places = [
            (text, i)
            for text in texts
            for i in range(length, len(text) + (text is not ids))
            if text[i - length : i] == ids[-length:]
        ]
        tokens, survival, expected = [], 1.0, 0.0
        while places and len(tokens) < k:
            grown = ids + tokens
            said = [(text, i, grown[i] if text is ids else [*text, END][i]) for text, i in places]
            votes = Counter(token for _, _, token in said)
            token, num = votes.most_common(1)[0]
            if list(votes.values()).count(num) > 1:
                return None  # a tie: which wins is told elsewhere
            survival *= chance(num, len(said), length, len(tokens))
            if survival < least or token == END:
                break
            tokens.append(token)
            expected += survival
            places = [(text, i + 1) for text, i, said_token in said if said_token == token]
        best = max(best, (expected, tuple(tokens)), key=lambda found: found[0])
    return best[1]


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.lists(TEXTS, max_size=3), st.integers(0, 6), st.sampled_from([0.0, 0.15, 0.4]))
def test_it_proposes_what_a_naive_counter_of_continuations_expects_most_of(ids, answers, k, least):
    memory = SuffixMemory("toy")
    for text in answers:
        memory.add(text)
    session = SuffixDrafter(places=ALL, least=least, memory=memory).open()
    expected = counted([ids, *answers], ids, k, least)
    if expected is not None:
        assert proposed(ids, k, session).tokens == expected


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), TEXTS), max_size=8))
def test_a_session_is_as_good_as_a_fresh_one_after_any_change_of_sequence(changes):
    session, ids = SuffixDrafter(places=3).open(), []
    for keep, new in changes:
        ids = ids[:keep] + new
        assert proposed(ids, session=session) == proposed(ids, places=3)


def in_order(array):
    pasts = [array._past(place) for place in array._places]
    return pasts == sorted(pasts) and sorted(array._places) == list(range(len(array.tokens)))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 60), TEXTS), max_size=6))
def test_a_suffix_array_stays_in_order_wherever_it_is_cut(changes):
    array = SuffixArray(3)
    for start, length, new in changes:
        array.cut(min(start, len(array.tokens)), min(start + length, len(array.tokens)))
        assert in_order(array)
        array.extend(new)
        assert in_order(array)


@pytest.mark.parametrize("left", range(1, 60, 4))
def test_an_interrupt_half_way_through_reading_leaves_no_wrong_order(left, monkeypatch):
    chance = Random(3)
    text = [chance.randrange(3) for _ in range(200)]
    other = [*text[:190], *(chance.randrange(3) for _ in range(4))]
    session, calls = SuffixDrafter(places=3).open(), 0
    past = SuffixArray._past

    def interrupted(array, place):
        nonlocal calls
        calls += 1
        if calls == left:
            raise KeyboardInterrupt
        return past(array, place)

    session.prefill(text)
    monkeypatch.setattr(SuffixArray, "_past", interrupted)
    with suppress(KeyboardInterrupt):
        session.prefill(other)
    calls = left
    for ids in (other, text, text[:30]):
        assert proposed(ids, session=session) == proposed(ids, places=3)


@pytest.mark.parametrize("period", [1, 2, 50])
def test_a_hundred_thousand_tokens_that_repeat_are_searched_without_a_look_at_all(
    period, monkeypatch
):
    ids = [i % period for i in range(100_000)]
    session, looks = SuffixDrafter().open(), 0
    session.prefill(ids[:-1])
    past = SuffixArray._past

    def counting(array, place):
        nonlocal looks
        looks += 1
        return past(array, place)

    monkeypatch.setattr(SuffixArray, "_past", counting)
    assert proposed(ids, 16, session, vocab_size=50).tokens == tuple(
        i % period for i in range(100_000, 100_016)
    )
    assert looks < 150  # ranking one token, ranking the context, 32 places on either side of it
    assert len(session._array._places) == 100_000


def test_both_ways_of_ranking_give_the_same_order(monkeypatch):
    chance, arrays = Random(5), []
    text = [chance.randrange(3) for _ in range(500)]
    for worth_sorting in (0, 10**9):
        monkeypatch.setattr(suffix_array, "_WORTH_SORTING", worth_sorting)
        array = SuffixArray(DEPTH)
        array.extend(text[:200])
        array.extend(text[200:])
        arrays.append(array._places)
    assert arrays[0] == arrays[1]


def test_without_a_memory_nothing_is_remembered():
    session = SuffixDrafter().open()
    prompt, text = tokens_of("kitten"), tokens_of("wordsthatcameback")
    for _ in range(5):
        session.prefill(prompt[:-1])
        seen = [proposed(prompt + text[:n], session=session).tokens for n in range(len(text))]
        assert seen == [proposed(prompt + text[:n]).tokens for n in range(len(text))]


def test_an_answer_is_copied_once_the_session_was_given_another_request():
    memory = SuffixMemory("toy")
    session, other = (SuffixDrafter(memory=memory).open() for _ in range(2))
    text = tokens_of("fivewordthing")
    answer(session, tokens_of("kz"), text)
    assert proposed("five", session=other).tokens == ()
    session.prefill(tokens_of("qqq"))
    assert letters(proposed("five", session=other, k=3).tokens) == "wor"
    assert memory._array.tokens == [*text[: len(text) // 2 * 2], END]


def test_prompts_do_not_enter_a_memory_nor_what_was_only_proposed():
    memory = SuffixMemory("toy")
    session = SuffixDrafter(memory=memory).open()
    prompt = tokens_of("abcdefabc")
    session.prefill(prompt[:-1])
    assert proposed(prompt, session=session).tokens
    proposed([*prompt, *tokens_of("xy")], session=session)
    session.prefill(tokens_of("next"))
    session.prefill(tokens_of("next"))
    assert memory._array.tokens == [*tokens_of("xy"), END]


def test_a_conversation_that_goes_on_adds_each_answer_once():
    memory = SuffixMemory("toy")
    session = SuffixDrafter(memory=memory).open()
    talk = tokens_of("hello")
    answer(session, talk, tokens_of("yes?"))
    talk += tokens_of("yes?") + tokens_of("more")
    answer(session, talk, tokens_of("no"))
    session.prefill([*talk, *tokens_of("no")])
    assert memory._array.tokens == [*tokens_of("yes?"), END, *tokens_of("no"), END]


def test_a_session_that_is_only_tried_out_leaves_nothing_in_a_memory():
    memory = SuffixMemory("toy")
    session = SuffixDrafter(memory=memory).open()
    answer(session, tokens_of("abcabc"), tokens_of("xy"))
    session.close()
    assert len(memory) == 0


def test_a_session_that_is_given_another_sequence_without_a_word_hands_its_answer_over():
    memory = SuffixMemory("toy")
    session = SuffixDrafter(memory=memory).open()
    for text in ("abc", "abcde", "xyz", "xyzzy", "k"):
        proposed(text, session=session)
    assert memory._array.tokens == [*tokens_of("de"), END, *tokens_of("zy"), END]


def test_text_and_memory_are_counted_together():
    memory = SuffixMemory("toy")
    for _ in range(2):
        memory.add(tokens_of("abx"))
    assert copied("abyqab", k=1) == "y"
    assert copied("abyqab", k=1, memory=memory) == "x"


def test_no_match_and_no_copy_reaches_across_the_end_of_an_answer():
    memory = SuffixMemory("toy")
    memory.add(tokens_of("mab"))
    memory.add(tokens_of("cde"))
    assert copied("ab", memory=memory) == ""
    assert copied("abc", k=2, least=0.0, memory=memory) == "de"
    assert proposed("abc", k=1, memory=memory).confidence == (chance(1, 1, 1, 0),)


def test_the_oldest_answers_leave_first_and_whole():
    memory, chances = SuffixMemory("toy", capacity=100), Random(4)
    answers = [[chances.randrange(3) for _ in range(chances.randrange(1, 40))] for _ in range(50)]
    for num, text in enumerate(answers, start=1):
        memory.add(text)
        kept = []
        for earlier in reversed(answers[:num]):
            if len(kept) + len(earlier) + 1 > 100:
                break
            kept = [*earlier, END, *kept]
        assert memory._array.tokens == kept
        assert len(memory) == len(kept)
        assert in_order(memory._array)


def test_an_answer_that_does_not_fit_and_an_empty_one_change_nothing():
    memory = SuffixMemory("toy", capacity=6)
    memory.add([1, 2, 3])
    memory.add([])
    memory.add([1] * 6)
    assert memory._array.tokens == [1, 2, 3, END]
    memory.add([1] * 5)
    assert memory._array.tokens == [1] * 5 + [END]


def test_threads_share_a_memory():
    memory, failures = SuffixMemory("toy", capacity=400), []
    answers = [[n] * 9 + [n + 10] for n in range(4)]

    def work(text):
        session = SuffixDrafter(memory=memory).open()
        try:
            for _ in range(100):
                answer(session, [20], text)
                for match in memory.nearest(text[:3], 5, 2):
                    assert match.following[0] in text
        except BaseException as failure:
            failures.append(failure)

    threads = [Thread(target=work, args=(text,)) for text in answers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert in_order(memory._array)
    assert len(memory) <= 400


def test_a_memory_is_saved_and_loaded(tmp_path):
    memory, file = SuffixMemory("toy"), tmp_path / "answers"
    memory.save(file)
    assert len(SuffixMemory.load(file, "toy")) == 0
    for text in ("onetwothree", "fourfivesix"):
        memory.add(tokens_of(text))
    memory.save(file)
    loaded = SuffixMemory.load(file, "toy")
    assert copied("five", k=3, memory=loaded) == copied("five", k=3, memory=memory) == "six"
    assert loaded._array.tokens == memory._array.tokens
    assert SuffixMemory.load(file, "toy", capacity=12)._array.tokens == [
        *tokens_of("fourfivesix"),
        END,
    ]
    assert len(SuffixMemory.load(file, "toy", capacity=3)) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["answers"]


def test_a_memory_of_another_tokenizer_is_refused(tmp_path):
    SuffixMemory("smollm2").save(tmp_path / "answers")
    with pytest.raises(OptionError, match="for smollm2, not for qwen"):
        SuffixMemory.load(tmp_path / "answers", "qwen")


ABOUT = {"format": "draftwise suffix memory 1", "tokenizer": "toy"}


@pytest.mark.parametrize(
    ("tokens", "about"),
    [
        ([1, END], None),
        ([1, END], {"format": "draftwise suffix memory 2", "tokenizer": "toy"}),
        ([1, END], {"format": ABOUT["format"]}),
        ([1, 2], ABOUT),
        ([1, -2, END], ABOUT),
        ([[1, END]], ABOUT),
        ([1.0, -1.0], ABOUT),
    ],
)
def test_what_is_no_memory_is_refused_in_one_line(tokens, about, tmp_path):
    tensor = torch.tensor(tokens)
    kind = tensor if tensor.is_floating_point() else tensor.int()
    save_file({"tokens": kind}, tmp_path / "answers", about)
    with pytest.raises(OptionError) as refusal:
        SuffixMemory.load(tmp_path / "answers", "toy")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "damage", ["cut", "empty", "text", "pickle", "huge", "other", "folder", "gone"]
)
def test_a_damaged_file_is_refused_in_one_line(damage, tmp_path):
    file = tmp_path / "answers"
    memory = SuffixMemory("toy")
    memory.add(range(20))
    memory.save(file)
    data = file.read_bytes()
    match damage:
        case "folder":
            file.unlink()
            file.mkdir()
        case "gone":
            file.unlink()
        case "pickle":
            torch.save({"tokens": [1]}, file)
        case "other":
            save_file({"weight": torch.zeros(2)}, file, ABOUT)
        case _:
            damaged = {"cut": data[:-5], "empty": b"", "text": b"hello", "huge": b"\xff" * 64}
            file.write_bytes(damaged[damage])
    with pytest.raises(OptionError, match="answers") as refusal:
        SuffixMemory.load(file, "toy")
    assert "\n" not in str(refusal.value)


def test_a_save_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    file, memory = tmp_path / "answers", SuffixMemory("toy")
    memory.save(file)
    memory.add([1, 2, 3])

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OptionError, match=r"cannot write .*answers: No space left"):
        memory.save(file)
    assert len(SuffixMemory.load(file, "toy")) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["answers"]
