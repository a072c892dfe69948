"""The documents that made-up rows are of: the tokens of each, and how much harder it is than the mean."""

TOKENS = [20, 20, 40, 40, 30, 30, 76]
HARD = [1.04, 0.96, 1.02, 0.98, 1.05, 0.95, 1.0]
