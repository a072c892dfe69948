"""Content decides what distance is: gates, counts and reflections read from the tokens themselves."""
