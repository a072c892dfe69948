"""Generated tasks whose examples are a prompt and its answer: a file for each."""
