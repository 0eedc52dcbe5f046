"""Engines on toys, loaded as a user loads objects of their own."""

import pytest

import draftwise
from draftwise.testing.tokenizers import NUM_TOKENS, byte_tokenizer
from draftwise.testing.toys import noisy, toy


@pytest.fixture(scope="session")
def target():
    return toy("llama", vocab_size=NUM_TOKENS), byte_tokenizer()


@pytest.fixture(scope="session")
def draft(target):
    return noisy(target[0], 0.05), target[1]


@pytest.fixture
def engine(target, draft):
    with draftwise.load(target, draft) as engine:
        yield engine
