"""Measurements of runs as one tidy table, and what follows from it: statistics, comparability, findings."""
