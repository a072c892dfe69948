"""Kernels with hand-written backward passes, which know nothing of encodings."""
