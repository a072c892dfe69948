"""A report as one HTML page that needs nothing but itself."""

from zoo.reports.page.document import page

__all__ = ["page"]
