"""draftwise beside other engines: the same prompts, tokens, threads and weights, in one run, in turns.

    python -m benchmarks.peers build                # an environment for each peer; minutes, once
    python -m benchmarks.peers run --out peers.json
    python -m benchmarks.peers table peers.json

Every peer runs in an environment of its own, as a worker: a process that holds its models and answers
lines of JSON. All decode greedily from the same token ids, one sequence at a time, until the model's own
end token or the limit. What a peer cannot do is in the results with the reason, in the peer's words.

Memory holds a few workers at once, and its speed changes within minutes. So draftwise answers every prompt
again beside every few peers, and only answers of one such turn are compared: a bar is the ratio within a
turn, the median over the turns of a workload, then over the workloads. The tokens a second in the tables
are there to be read, not to be divided by each other.

A run that was interrupted goes on where it was, with the same --out; other conditions need another file.
"""
