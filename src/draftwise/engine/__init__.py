"""The engine: a target and a drafter made ready, and what Python and the command line call."""
