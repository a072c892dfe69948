"""Files of a run, and reading them back: its folder, its card, its checkpoints."""
