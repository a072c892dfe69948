"""One recipe with many encodings and seeds, as run folders or, for a study, as one table."""
