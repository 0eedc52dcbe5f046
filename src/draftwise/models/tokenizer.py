"""A transformers tokenizer as the rest of the library sees it: `text.tokenizer` is the protocol."""

from collections.abc import Sequence
from threading import Lock
from typing import Protocol, cast

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from draftwise.core.errors import PromptError


class Turn(Protocol):
    """One message of a chat."""

    @property
    def role(self) -> str:
        """Who speaks."""
        ...

    @property
    def content(self) -> str:
        """What they say."""
        ...


class HFTokenizer:
    """Text to tokens and back, by the model's own rules; spaces are never tidied up.

    tokenizer: any transformers tokenizer. Whether it splits special tokens is a switch of the tokenizer
        that each encoding sets for itself, so one of them runs at a time.
    end_ids: tokens that end the model's text; the model's configuration knows more of them.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, name: str, end_ids: frozenset[int]
    ) -> None:
        self._tokenizer = tokenizer
        self._encoding = Lock()
        self._strings = _strings(tokenizer)
        self._name = name
        self._end_ids = end_ids

    @property
    def name(self) -> str:
        """The name of its model."""
        return self._name

    @property
    def vocab_size(self) -> int:
        """The highest id in the vocabulary, plus one."""
        return len(self._strings)

    @property
    def end_ids(self) -> frozenset[int]:
        """Tokens with which the model ends its text."""
        return self._end_ids

    @property
    def bos_id(self) -> int | None:
        """The token that begins a text."""
        bos = self._tokenizer.bos_token_id
        return bos if isinstance(bos, int) else None

    @property
    def special_ids(self) -> frozenset[int]:
        """Tokens that `decode` leaves out unless told otherwise."""
        added = self._tokenizer.added_tokens_decoder
        return frozenset(self._tokenizer.all_special_ids) | {i for i in added if added[i].special}

    @property
    def has_chat_template(self) -> bool:
        """Whether `chat` works."""
        return self._tokenizer.chat_template is not None

    def encode(self, text: str) -> list[int]:
        """Tokens of a raw prompt, with BOS where the model was trained so."""
        with self._encoding:
            return self._tokenizer(text, verbose=False).input_ids

    def encode_plain(self, text: str) -> list[int]:
        """Tokens of the text alone, none of them special."""
        with self._encoding:
            ids = self._tokenizer(
                text, add_special_tokens=False, split_special_tokens=True, verbose=False
            ).input_ids
        return cast("list[int]", ids)

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """Text of the tokens."""
        text = self._tokenizer.decode(
            list(ids), skip_special_tokens=skip_special, clean_up_tokenization_spaces=False
        )
        return cast("str", text)

    def chat(self, messages: Sequence[Turn]) -> list[int]:
        """Tokens of a conversation up to where the assistant begins to speak."""
        if not self.has_chat_template:
            raise PromptError(f"{self.name} has no chat template: give it raw text (--raw).")
        turns = [{"role": turn.role, "content": turn.content} for turn in messages]
        try:
            with self._encoding:
                ids = self._tokenizer.apply_chat_template(
                    turns, add_generation_prompt=True, return_dict=False
                )
        except (TemplateError, ValueError, IndexError) as error:
            raise PromptError(
                f"{self.name}'s chat template refuses the messages: {error}"
            ) from error
        return cast("list[int]", ids)

    def token_strings(self) -> Sequence[str | None]:
        """Each id's string as the vocabulary stores it; None for an unused id."""
        return self._strings

    @property
    def byte_level(self) -> bool:
        """Whether the vocabulary spells bytes as letters."""
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        return "ByteLevel" in str(getattr(backend, "decoder", None))

    @property
    def added_ids(self) -> frozenset[int]:
        """Tokens added to the vocabulary."""
        return frozenset(self._tokenizer.added_tokens_decoder)


def _strings(tokenizer: PreTrainedTokenizerBase) -> tuple[str | None, ...]:
    by_id = {i: token for token, i in tokenizer.get_vocab().items()}
    return tuple(by_id.get(i) for i in range(max(by_id, default=-1) + 1))
