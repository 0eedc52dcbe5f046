"""The tokenizer as everything above `models` sees it. `models` supplies it; nothing here tokenizes.

Tokens are plain ints. A tokenizer does not change while it is in use, and its methods may be called
from several threads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat: who speaks ("system", "user", "assistant", ...) and what they say."""

    role: str
    content: str


class Tokenizer(Protocol):
    """Text to tokens and back."""

    @property
    def name(self) -> str:
        """What to call it in messages, such as the name of its model."""
        ...

    @property
    def vocab_size(self) -> int:
        """The real size: the highest usable id, plus one. Padding rows do not count."""
        ...

    @property
    def end_ids(self) -> frozenset[int]:
        """Tokens with which the model ends its text; empty if it has none."""
        ...

    @property
    def bos_id(self) -> int | None:
        """The token that begins a text, if there is one."""
        ...

    @property
    def special_ids(self) -> frozenset[int]:
        """Tokens that `decode` leaves out unless told otherwise."""
        ...

    @property
    def has_chat_template(self) -> bool:
        """Whether `chat` works."""
        ...

    def encode(self, text: str) -> list[int]:
        """Tokens of a raw prompt, with whatever the tokenizer puts before a text by habit."""
        ...

    def encode_plain(self, text: str) -> list[int]:
        """Tokens of the text alone: nothing before it by habit of a prompt, and no token is special.

        Some tokenizers still put a space before it; `text.spelling` knows how to go on from a text.
        """
        ...

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """Text of the tokens, its spaces as they are; U+FFFD for bytes that are not UTF-8."""
        ...

    def chat(self, messages: Sequence[Message]) -> list[int]:
        """Tokens of a conversation up to where the assistant begins to speak.

        Raises PromptError where there is no chat template or it refuses the messages.
        """
        ...

    def token_strings(self) -> Sequence[str | None]:
        """Each id's string as the vocabulary stores it ("Ġthe", "▁the"); None for an unused id."""
        ...

    @property
    def byte_level(self) -> bool:
        """Whether those strings spell bytes as letters ("Ġthe"), or text with "▁" for a space."""
        ...

    @property
    def added_ids(self) -> frozenset[int]:
        """Tokens added to the vocabulary, whose strings are stored as they read."""
        ...
