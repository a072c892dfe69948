"""What a run leaves on disk, and reading it back: its folder, its card, its checkpoints."""
