"""Decoding: the oracle (`autoregressive`), the loop (`speculative`), and the proof that they agree."""
