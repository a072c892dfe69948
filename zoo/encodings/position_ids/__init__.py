"""Wrappers that say where tokens stand, around any encoding that reads positions."""
