"""Errors of the library. Each carries one line that says what is wrong and what to do about it."""


class DraftwiseError(Exception):
    """Base of every error that draftwise raises on purpose."""


class OptionError(DraftwiseError):
    """An option is unknown, out of range, or does not fit the others."""


class ModelError(DraftwiseError):
    """A model cannot be found, fetched, loaded, or used for speculative decoding."""


class PromptError(DraftwiseError):
    """A prompt is empty, too long for the context, or not readable as text."""


class BusyError(DraftwiseError):
    """An engine was asked for a second request while the first is still open in the same thread."""


class ClosedError(DraftwiseError):
    """An engine was used after it was closed."""


class FaultError(DraftwiseError):
    """Speculative output differs from plain output by more than the arithmetic explains."""
