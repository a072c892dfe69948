"""Queries and keys turned by their positions. `rotation`, `rope_scaling` and `two_ranges` are shared."""
