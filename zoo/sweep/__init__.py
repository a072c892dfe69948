"""One recipe with many encodings and seeds: each a run of its own, in a process of its own.

Nothing here imports torch: the processes that are started do.
"""
