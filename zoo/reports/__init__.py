"""What runs gave, for a reader: one run or several, as tables, plots and a page."""
