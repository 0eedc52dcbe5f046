"""The pure part: distributions, rules, stopping, theory, counters, clock. No models, no text, no I/O.

Modules are imported by name (`from draftwise.core.theory import expected_tokens`), so that those
without tensors (theory, counters, stopping, clock, errors) load without torch.
"""
