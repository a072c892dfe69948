"""The browser for the gallery's pages."""

from browser import browser

__all__ = ["browser"]
