"""The embedded model, in float32, once a session, with drafts of three kinds."""

import pytest
import torch

import draftwise
from draftwise.drafters.lookup import PromptLookup
from draftwise.drafters.model import DraftModel
from draftwise.models.eager import EagerRunner
from draftwise.testing.toys import noisy

PROMPTS = (
    "Write a short story about a lighthouse keeper.",
    "Explain how a refrigerator works.",
    "Write a Python function that merges two sorted lists.",
    "Repeat this list three times: red, green, blue.",
    "Correct the spelling: The quik brown fox jumpd over the lazi dog near the rivr bank.",
    "Count from 100 to 120.",
    "List the planets as JSON with their diameters in kilometres.",
    "Translate to French: Where is the train station?",
    "What is 17 times 23? Think step by step.",
    "Summarise: Bees collect nectar, turn it into honey, and store it in combs for the winter.",
    "Who wrote Hamlet, and when?",
    "Write a poem with emoji about the sea 🌊 and the moon 🌙.",
)


@pytest.fixture(scope="session")
def target():
    with draftwise.load("smollm2-135m", "none", dtype="float32", runner="eager") as engine:
        yield engine.target


@pytest.fixture(scope="session", params=["self", "lookup", "noisy"])
def engine(request, target):
    """The embedded target, drafted for by itself, by prompt lookup, or by a noisy copy of itself."""
    model = target.model, target.tokenizer._tokenizer
    if request.param == "noisy":
        draft = DraftModel(EagerRunner(noisy(target.model, 0.1), target.context_length), "noisy")
    else:
        draft = PromptLookup() if request.param == "lookup" else "self"
    with draftwise.load(model, draft) as engine:
        yield engine


@pytest.fixture(scope="session")
def reference(target):
    """What transformers' own generate writes, greedily."""
    written = {}

    def generate(prompt, tokens=32):
        if (prompt, tokens) not in written:
            ids = torch.tensor([target.tokenizer.chat([draftwise.Message("user", prompt)])])
            with torch.inference_mode():
                out = target.model.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    do_sample=False,
                    max_new_tokens=tokens,
                    eos_token_id=sorted(target.end_ids),
                    pad_token_id=0,
                )
            written[prompt, tokens] = out[0, ids.shape[1] :].tolist()
        return written[prompt, tokens]

    return generate
