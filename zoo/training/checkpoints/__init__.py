"""The checkpoints that a run keeps, how they are written, and going on from one."""
