"""draftwise: speculative decoding that proves its output unchanged and shows its bill.

    import draftwise

    with draftwise.load("smollm2-135m", draft="lookup") as engine:
        result = engine.generate("Name three rivers.", tokens=64, baseline=True)
        print(result.text, result.identity.identical, result.speedup.measured)

Names are loaded when they are first used, so that importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from draftwise.engine.engine import Engine as Engine
    from draftwise.engine.load import load as load
    from draftwise.engine.result import Result as Result
    from draftwise.engine.stream import Stream as Stream
    from draftwise.text.tokenizer import Message as Message

_PUBLIC = {
    "Engine": "draftwise.engine.engine",
    "Message": "draftwise.text.tokenizer",
    "Result": "draftwise.engine.result",
    "Stream": "draftwise.engine.stream",
    "load": "draftwise.engine.load",
}

__all__ = ["Engine", "Message", "Result", "Stream", "load"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'draftwise' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)
