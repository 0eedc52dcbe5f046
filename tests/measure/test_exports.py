"""Settings for other engines: they parse, they say what was asked, and transformers really runs them."""

import builtins
import json
import shlex

import pytest
import torch
from transformers import LlamaForCausalLM

from draftwise.drafters.lookup import PromptLookup
from draftwise.measure.exports import MATCHED, NOT_POSSIBLE, ORIGINALS, Setting, exports
from draftwise.models.builtin import BUILTIN
from draftwise.testing.tokenizers import NUM_TOKENS, byte_tokenizer
from draftwise.testing.toys import noisy, toy
from tests.models.rig import one_thread  # noqa: F401

ENGINES = ["vLLM", "SGLang", "llama.cpp", "transformers"]
SERVERS = ENGINES[:3]
USUAL = {
    "target": "Qwen/Qwen2.5-7B-Instruct",
    "target_kind": "hub",
    "draft": "Qwen/Qwen2.5-0.5B-Instruct",
    "draft_kind": "hub",
    "k": 5,
    "vocabulary": "same",
    "dtype": "bfloat16",
    "device": "cpu",
}


def made(**changes):
    return exports(Setting(**(USUAL | changes)))


def command(engine, **changes):
    """Words of the command, which is the last line; the lines before it are comments or commands."""
    text = made(**changes)[engine]
    assert not text.startswith(NOT_POSSIBLE), text
    return shlex.split(text.splitlines()[-1])


def option(words, name):
    assert words.count(name) == 1, f"{name} in {words}"
    return words[words.index(name) + 1]


def speculation(**changes):
    return json.loads(option(command("vLLM", **changes), "--speculative-config"))


def reason(engine, **changes):
    text = made(**changes)[engine]
    assert text.startswith(NOT_POSSIBLE)
    assert "\n" not in text
    return text.removeprefix(NOT_POSSIBLE)


KINDS = ["hub", "folder", "gguf", "built-in", "object"]


@pytest.mark.parametrize("vocabulary", ["same", "padding", "different"])
@pytest.mark.parametrize("draft_kind", [*KINDS, "lookup", "suffix", "mixed", "self", "none"])
@pytest.mark.parametrize("target_kind", KINDS)
def test_every_setting_gives_each_engine_a_text_that_parses_or_a_reason(
    target_kind, draft_kind, vocabulary
):
    name = {"built-in": "smollm2-135m", "gguf": "~/my models/it's.gguf"}
    texts = made(
        target=name.get(target_kind, "my models/it's"),
        target_kind=target_kind,
        draft=name.get(draft_kind, 'a "draft"'),
        draft_kind=draft_kind,
        vocabulary=vocabulary,
        temperature=0.7,
    )
    assert list(texts) == ENGINES
    for engine, text in texts.items():
        if text.startswith(NOT_POSSIBLE):
            assert "\n" not in text
        elif engine == "transformers":
            compile(text, engine, "exec")
        else:
            assert text.startswith("# ")
            for line in text.splitlines():
                assert line.startswith("#") or shlex.split(line)


def test_vllm_serves_with_a_draft_model():
    words = command("vLLM")
    assert words[:3] == ["vllm", "serve", USUAL["target"]]
    assert option(words, "--dtype") == "bfloat16"
    assert speculation() == {
        "method": "draft_model",
        "model": USUAL["draft"],
        "num_speculative_tokens": 5,
    }


@pytest.mark.parametrize("vocabulary", ["padding", "different"])
def test_vllm_is_told_of_embeddings_with_other_rows(vocabulary):
    assert speculation(vocabulary=vocabulary)["use_heterogeneous_vocab"] is True


def test_vllm_looks_up_what_draftwise_looks_up():
    assert (PromptLookup().shortest, PromptLookup().longest) == MATCHED
    expected = {"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 16}
    assert speculation(draft_kind="lookup") == expected | {"num_speculative_tokens": 5}
    assert speculation(draft_kind="suffix")["method"] == "suffix"


def test_sglang_verifies_k_tokens_and_the_one_before_them():
    words = command("SGLang")
    assert option(words, "--speculative-algorithm") == "STANDALONE"
    assert option(words, "--speculative-draft-model-path") == USUAL["draft"]
    assert option(words, "--speculative-num-steps") == "5"
    assert option(words, "--speculative-num-draft-tokens") == "6"
    assert option(words, "--speculative-eagle-topk") == "1"
    ngram = command("SGLang", draft_kind="lookup")
    assert option(ngram, "--speculative-algorithm") == "NGRAM"
    assert option(ngram, "--speculative-num-draft-tokens") == "6"


def test_llama_cpp_runs_gguf_files_as_they_are():
    files = {"target": "big.gguf", "target_kind": "gguf", "draft": "small.gguf"}
    words = command("llama.cpp", **files, draft_kind="gguf")
    assert option(words, "-m") == "big.gguf"
    assert option(words, "-md") == "small.gguf"
    assert option(words, "--spec-type") == "draft-simple"
    assert option(words, "--spec-draft-n-max") == "5"
    lookup = command("llama.cpp", **files, draft_kind="lookup")
    assert option(lookup, "--spec-type") == "ngram-simple"
    assert option(lookup, "--spec-ngram-simple-size-m") == "5"


def test_llama_cpp_fetches_gguf_repositories_and_has_other_models_converted_first():
    changes = {"target": "me/Big-GGUF", "draft": "./small one", "draft_kind": "folder"}
    text = made(**changes)["llama.cpp"]
    [conversion] = [line for line in text.splitlines() if line.startswith("python")]
    words = shlex.split(text.splitlines()[-1])
    assert option(words, "-hf") == "me/Big-GGUF"
    assert shlex.split(conversion)[2] == "./small one"
    assert option(shlex.split(conversion), "--outtype") == "bf16"
    assert option(shlex.split(conversion), "--outfile") == option(words, "-md")


def test_models_of_one_name_become_two_files_and_one_model_one():
    two = made(target="a/model", draft="b/model")["llama.cpp"]
    one = made(draft_kind="self")["llama.cpp"]
    assert [text.count("convert_hf_to_gguf.py") for text in (two, one)] == [2, 1]
    words = shlex.split(two.splitlines()[-1])
    assert option(words, "-m") != option(words, "-md")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("changes", [{"k": 0}, {"draft_kind": "none"}])
def test_without_speculation_the_plain_command_says_that_it_is_off(engine, changes):
    comment, _, rest = made(**changes)[engine].partition("\n")
    assert "speculation is off" in comment
    assert not any(word in rest for word in ("--spec", "assistant", "lookup"))


@pytest.mark.parametrize("engine", SERVERS)
def test_a_server_is_told_the_temperature_with_each_request(engine):
    assert "temperature 0.7" in made(temperature=0.7)[engine].splitlines()[0]


def test_another_vocabulary_is_refused_where_the_engine_would_draft_nonsense():
    for engine in ("SGLang", "llama.cpp"):
        assert USUAL["draft"] in reason(engine, vocabulary="different")


@pytest.mark.parametrize("engine", ENGINES)
def test_an_object_in_memory_cannot_be_named(engine):
    assert "save it" in reason(engine, target_kind="object")
    assert "save it" in reason(engine, draft_kind="object")


def test_what_an_engine_lacks_is_said():
    assert "GGUF" in reason("vLLM", target="x.gguf", target_kind="gguf")
    assert "GGUF" in reason("SGLang", draft="x.gguf", draft_kind="gguf")
    assert all("float64" in reason(engine, dtype="float64") for engine in SERVERS)
    assert all("suffix" in reason(e, draft_kind="suffix") for e in ("llama.cpp", "transformers"))
    assert all("mix" in reason(engine, draft_kind="mixed") for engine in ENGINES)


def test_built_in_models_are_named_as_the_hub_knows_them():
    assert ORIGINALS.keys() == BUILTIN.keys()
    words = command("vLLM", target="qwen2.5-coder-1.5b", target_kind="built-in", draft_kind="none")
    assert words[2] == "Qwen/Qwen2.5-Coder-1.5B-Instruct"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A target, a draft, and a draft with more rows in its embedding."""
    root = tmp_path_factory.mktemp("models")
    target = toy("llama", dtype=torch.float32, vocab_size=NUM_TOKENS)
    padded = toy("llama", dtype=torch.float32, vocab_size=NUM_TOKENS + 4, seed=3)
    for name, model in {"target": target, "draft": noisy(target, 0.1), "padded": padded}.items():
        model.save_pretrained(root / name)
        byte_tokenizer().save_pretrained(root / name)
    return root


@pytest.fixture
def written(folders, monkeypatch):
    """Run the program for transformers; what it prints, and how many tokens each target pass read."""

    def run(**changes):
        changes = {"target_kind": "folder", "dtype": "float32"} | changes
        if changes["draft_kind"] == "folder":
            changes["draft"] = str(folders / changes["draft"])
        program = made(target=str(folders / "target"), **changes)["transformers"]
        printed, widths = [], []
        forward = LlamaForCausalLM.forward

        def counted(model, input_ids, **kwargs):
            if model.name_or_path.endswith("target"):
                widths.append(input_ids.shape[1])
            return forward(model, input_ids, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(LlamaForCausalLM, "forward", counted)
            patch.setattr(builtins, "print", printed.append)
            exec(program, {})
        return printed, widths[1:]  # the first pass reads the prompt

    return run


def test_in_transformers_a_draft_model_writes_the_same_text_with_k_guesses_a_pass(written):
    plain, passes = written(draft_kind="none")
    assert set(passes) == {1}
    text, fewer = written(draft_kind="folder", draft="draft", k=3)
    assert text == plain
    assert len(fewer) < len(passes)
    assert set(fewer[:-3]) == {4}  # near the end there is less to guess


def test_in_transformers_prompt_lookup_writes_the_same_text(written):
    plain, passes = written(draft_kind="none")
    text, fewer = written(draft_kind="lookup", k=4)
    assert text == plain
    assert max(fewer) == 5
    assert len(fewer) < len(passes)


def test_in_transformers_a_draft_with_other_rows_writes_the_same_text(written):
    plain, _ = written(draft_kind="none")
    text, widths = written(draft_kind="folder", draft="padded", vocabulary="padding", k=3)
    assert text == plain
    assert max(widths) > 1
