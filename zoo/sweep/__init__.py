"""One recipe with many encodings and seeds: each a run of its own, in a process of its own."""
