"""Evaluation protocols: what of a text or a task is scored at a length, and with which context."""
