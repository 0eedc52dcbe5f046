"""Text of bytes, which is UTF-8 whatever the locale says."""

from draftwise.core.errors import PromptError


def decoded(data: bytes, name: str) -> str:
    """Decode, dropping a byte order mark; anything else is refused by name with its byte offset."""
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise PromptError(f"{name} is not UTF-8 at byte {error.start}: convert it first") from error
