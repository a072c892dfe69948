"""Positional encodings: one file each. `base` holds the hooks, `registry` finds what there is."""
