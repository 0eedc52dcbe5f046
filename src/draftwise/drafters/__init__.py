"""Drafters: whatever proposes tokens. `drafter.py` has the Protocol; each other module is one drafter."""
