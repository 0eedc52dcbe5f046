"""Explicit randomness: where every draw and every accept-or-reject decision of a request comes from.

Two sources. `KeyedNoise` makes a draw a function of (seed, choice, position, token id) alone, so that
the match rule writes the same text with speculation on or off, at any k, with any draft. `StreamNoise`
spends a fresh number on each decision, which token rejection and block verification need: they may
look at a position, discard it, and come back to it, and a number used twice would bias the second
decision.

Numbers come from a counter-based hash in integer arithmetic, so they are the same on every device;
only the logarithm that turns them into Gumbel noise may differ in its last bit.
"""

import hashlib
import secrets
import struct
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from draftwise.core.distributions import Distribution, OneHot

_LOW_32_BITS = 0xFFFFFFFF
_MOST_RECENT = 32


class Randomness(Protocol):
    """What rules and drafters draw from. Laws are proved by a third source that enumerates."""

    def draw(self, p: Distribution, position: int) -> list[int]:
        """Draw one token from each row of p; row i stands for position `position + i`."""
        ...

    def accept(self, p: float, q: float) -> bool:
        """True with probability min(1, p/q): r q < p, strictly, with r uniform in [0, 1)."""
        ...


@runtime_checkable
class DeviceRandomness(Randomness, Protocol):
    """Randomness that draws where the distribution lies."""

    def choose(self, p: Distribution, position: int) -> Tensor:
        """What `draw` gives, int64 [n] on p's device, without waiting for it."""
        ...


class KeyedNoise:
    """Draws are decided by seed, choice, position and token id, and by nothing else.

    seed: any integer; only its low 64 bits count. choice: which of several answers to one prompt.
    """

    def __init__(self, seed: int, choice: int = 0) -> None:
        self._seed, self._choice = seed, choice
        self._decisions = 0
        self._recent: dict[tuple[int, int, torch.device], Tensor] = {}

    def draw(self, p: Distribution, position: int) -> list[int]:
        """Draw by the Gumbel arg-max: exact, since the noise of different tokens is independent."""
        return self.choose(p, position).tolist()

    def choose(self, p: Distribution, position: int) -> Tensor:
        """Draw, and leave the tokens on the device."""
        if isinstance(p, OneHot):
            return p.ids
        noise = self.noise(p.p, position)
        return (p.p.log() + noise.to(p.p.dtype)).argmax(-1)

    def noise(self, like: Tensor, position: int) -> Tensor:
        """Noise for the rows of a tensor [n, vocab], at n positions from `position` on."""
        rows, vocab_size = like.shape
        return torch.stack(
            [self._noise_at(position + i, vocab_size, like.device) for i in range(rows)]
        )

    def accept(self, p: float, q: float) -> bool:
        """Decide by a number of its own; the match rule never asks."""
        self._decisions += 1
        return _uniform(_key(self._seed, self._choice, -self._decisions)) * q < p

    def _noise_at(self, position: int, vocab_size: int, device: torch.device) -> Tensor:
        """Noise of one position: draft, target and proof ask for the same one within a round."""
        where = (position, vocab_size, device)
        if where not in self._recent:
            if len(self._recent) >= _MOST_RECENT:
                self._recent.clear()
            key = _key(self._seed, self._choice, position)
            self._recent[where] = gumbel(key, vocab_size, device)
        return self._recent[where]


class StreamNoise(KeyedNoise):
    """Every draw and every decision takes the next number of one stream; positions are not looked at."""

    def __init__(self, seed: int, choice: int = 0) -> None:
        super().__init__(seed, choice)
        self._draws = 0

    def noise(self, like: Tensor, position: int) -> Tensor:
        """The next noise of the stream for the rows of a tensor [n, vocab]."""
        first, self._draws = self._draws, self._draws + len(like)
        return super().noise(like, first)


def fresh_seed() -> int:
    """Return a seed that nobody has chosen, for requests that give none."""
    return secrets.randbits(63)


def gumbel(key: tuple[int, int], vocab_size: int, device: torch.device) -> Tensor:
    """Gumbel noise for each token id, shape [vocab_size], float64 (float32 where a device has no more).

    Two rounds of the 32-bit finaliser of MurmurHash3 over the id; -log(-log1p(-v)) with v uniform
    keeps its precision where it matters, at the large values.
    """
    ids = torch.arange(vocab_size, device=device)
    bits = _finalise(_finalise(((ids * 0x9E3779B1) & _LOW_32_BITS) ^ key[0]) ^ key[1])
    real = torch.float32 if device.type == "mps" else torch.float64
    v = ((bits.to(real) + 0.5) / 2**32).clamp(max=1 - torch.finfo(real).eps)
    return -torch.log(-torch.log1p(-v))


def _uniform(key: tuple[int, int]) -> float:
    """Return a number in [0, 1) with 53 random bits."""
    return ((key[0] << 21) | (key[1] >> 11)) / 2**53


def _key(seed: int, choice: int, counter: int) -> tuple[int, int]:
    packed = struct.pack("<QQq", seed & (2**64 - 1), choice, counter)
    low, high = struct.unpack("<II", hashlib.blake2b(packed, digest_size=8).digest())
    return low, high


def _finalise(bits: Tensor) -> Tensor:
    """MurmurHash3's finaliser on 32-bit values held in int64, whose products wrap harmlessly."""
    bits = ((bits ^ (bits >> 16)) * 0x85EBCA6B) & _LOW_32_BITS
    bits = ((bits ^ (bits >> 13)) * 0xC2B2AE35) & _LOW_32_BITS
    return bits ^ (bits >> 16)
