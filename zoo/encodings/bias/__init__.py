"""A term of the score that depends on positions alone; `by_distance` is what costly ones share."""
