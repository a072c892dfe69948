"""The command line: a file for each verb, with its options, its help, and what it runs."""
