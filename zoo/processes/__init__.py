"""The processes of one command: which one this is, what it hears, whom it ends with, and who tells."""
