"""Wrappers that change positions, around any encoding that reads them."""
