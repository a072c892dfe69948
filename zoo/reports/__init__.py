"""Results of one run or several as tables, plots and a page."""
