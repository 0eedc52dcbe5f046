"""What is measured on: prompts of our own, and the user's."""

import io
import json
import subprocess
import sys

import pytest

from draftwise.core.errors import OptionError, PromptError
from draftwise.measure.workloads import BenchPrompt, builtin_workloads, choose, read_prompts
from draftwise.text.tokenizer import Message

NAMES = [
    "prose",
    "code",
    "repetition",
    "structured",
    "qa",
    "editing",
    "summarising",
    "translation",
    "arithmetic",
    "mixed",
]


@pytest.fixture
def wrote(tmp_path):
    def write(content, name="mine.jsonl"):
        path = tmp_path / name
        if isinstance(content, list):
            content = "".join(f"{json.dumps(line)}\n" for line in content)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


def test_every_kind_has_prompts_enough_to_say_something_about_it():
    workloads = builtin_workloads()
    assert list(workloads) == NAMES
    prompts = [prompt for workload in workloads.values() for prompt in workload.prompts]
    assert len(set(prompts)) == len(prompts)
    for name, workload in workloads.items():
        assert workload.name == name
        assert workload.about
        assert "\n" not in workload.about
        assert len(workload.prompts) >= 4
        assert all(prompt == prompt.strip() != "" for prompt in workload.prompts)


def test_prompts_about_a_text_bring_the_text():
    workloads = builtin_workloads()
    for name in ("editing", "summarising", "translation"):
        assert all(80 <= len(prompt.split()) <= 160 for prompt in workloads[name].prompts)


def test_all_workloads_are_chosen_if_none_is_named():
    chosen = choose()
    assert list(dict.fromkeys(prompt.workload for prompt in chosen)) == NAMES
    assert len(chosen) == sum(len(w.prompts) for w in builtin_workloads().values())


def test_named_workloads_come_in_the_order_of_their_names_and_once():
    assert list(dict.fromkeys(p.workload for p in choose(["qa", "code"]))) == ["qa", "code"]
    assert choose(["code", "code"]) == choose(["code"])


def test_a_limit_counts_the_prompts_of_each_workload():
    assert [(p.workload, p.index) for p in choose(["code", "qa"], limit=2)] == [
        ("code", 0),
        ("code", 1),
        ("qa", 0),
        ("qa", 1),
    ]


def test_an_unknown_workload_is_an_error_that_names_the_nearest():
    with pytest.raises(OptionError, match=r"no workload summarizing: did you mean summarising\?"):
        choose(["summarizing"])
    with pytest.raises(OptionError, match="there are prose, code"):
        choose(["xyz"])


def test_a_limit_below_one_is_an_error(wrote):
    with pytest.raises(OptionError, match="limit is 0: give 1 or more"):
        choose(limit=0)
    with pytest.raises(OptionError, match="limit is -1"):
        read_prompts(wrote([{"prompt": "Hi"}]), limit=-1)


def test_lines_of_json_are_prompts_and_conversations_counted_by_workload(wrote):
    path = wrote(
        [
            {"prompt": "Grüezi"},
            {"workload": "chat", "messages": [{"role": "user", "content": "Hello"}]},
            {"prompt": "Two\nlines"},
            {"workload": "chat", "prompt": "Again"},
        ]
    )
    assert read_prompts(path) == [
        BenchPrompt("mine", 0, "Grüezi"),
        BenchPrompt("chat", 0, (Message("user", "Hello"),)),
        BenchPrompt("mine", 1, "Two\nlines"),
        BenchPrompt("chat", 1, "Again"),
    ]
    assert [(p.workload, p.index) for p in read_prompts(path, limit=1)] == [
        ("mine", 0),
        ("chat", 0),
    ]


def test_any_other_file_is_one_prompt_as_a_whole(wrote):
    path = wrote('{"prompt": "as it is"}\nand more\n', "notes.txt")
    assert read_prompts(path) == [BenchPrompt("notes", 0, '{"prompt": "as it is"}\nand more')]


def test_standard_input_is_one_prompt(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("Zürich?\r\n".encode()), "ascii"))
    assert read_prompts("-") == [BenchPrompt("stdin", 0, "Zürich?")]


def test_a_byte_order_mark_blank_lines_and_windows_line_ends_do_not_count(wrote):
    path = wrote('\ufeff{"prompt": "a"}\r\n\r\n{"prompt": "b"}')
    assert [p.prompt for p in read_prompts(path)] == ["a", "b"]


def test_a_line_separator_within_a_text_ends_no_line(wrote):
    assert [p.prompt for p in read_prompts(wrote('{"prompt": "a\u2028b"}\n'))] == ["a\u2028b"]


GOOD = json.dumps({"prompt": "fine"})


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "not JSON at column 2"),
        ("[1]", "not an object"),
        ("{}", "either prompt or messages"),
        ('{"prompt": "a", "messages": []}', "either prompt or messages"),
        ('{"prompt": 3}', "prompt is no text"),
        ('{"prompt": ""}', "prompt is empty"),
        (r'{"prompt": "a\ud800"}', "prompt is not UTF-8 at character 1"),
        ('{"prompt": "a", "workload": ""}', "workload is empty"),
        ('{"prompt": "a", "tokens": 9}', "tokens is not known"),
        ('{"messages": []}', "no list of messages"),
        ('{"messages": "hello"}', "no list of messages"),
        ('{"messages": ["hello"]}', "role and content"),
        ('{"messages": [{"role": "user"}]}', "role and content"),
        ('{"messages": [{"role": "user", "content": null}]}', "content is no text"),
        ('{"messages": [{"role": "", "content": "a"}]}', "role is empty"),
    ],
)
def test_a_bad_line_is_named_with_its_number_and_its_fault(wrote, line, complaint):
    path = wrote(f"{GOOD}\n\n{line}\n")
    with pytest.raises(PromptError) as error:
        read_prompts(path)
    assert str(error.value).startswith(f"{path}, line 3: ")
    assert complaint in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["mine.jsonl", "mine.txt"])
@pytest.mark.parametrize("content", ["", "\n \n", "\ufeff"])
def test_a_file_without_a_prompt_is_an_error(wrote, content, name):
    with pytest.raises(PromptError, match="is empty: give at least one prompt"):
        read_prompts(wrote(content, name))


def test_another_encoding_is_refused_with_its_place(wrote):
    with pytest.raises(PromptError, match="is not UTF-8 at byte 13"):
        read_prompts(wrote(b'{"prompt": "Z\xfcrich"}\n'))


def test_a_file_that_is_not_there_is_an_error_of_one_line(tmp_path):
    with pytest.raises(PromptError, match=r"cannot read .*: No such file"):
        read_prompts(str(tmp_path / "nowhere.jsonl"))


def test_workloads_need_no_torch():
    code = (
        "import sys, draftwise.measure.workloads as w; w.choose(); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
