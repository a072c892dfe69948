"""Several runs beside each other: whether they may stand there, and the curves that they give."""
