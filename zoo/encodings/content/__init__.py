"""A term of the score that position and content make together, through learned vectors for distances."""
