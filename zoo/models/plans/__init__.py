"""Ways to compute attention, one of which is chosen for each shape; all equal the one in `reference`."""
