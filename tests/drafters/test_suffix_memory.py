"""The memory of the suffix drafter: earlier answers, bounded, shared, saved."""

from random import Random
from threading import Thread

import pytest
import torch
from safetensors.torch import save_file

from draftwise.core.errors import OptionError
from draftwise.drafters.copying import chance
from draftwise.drafters.suffix import SuffixDrafter
from draftwise.drafters.suffix_memory import END, SuffixMemory
from tests.decoding.rig import letters, tokens_of
from tests.drafters.copies import answer, copied, in_order, proposed


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
