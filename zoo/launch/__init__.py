"""The processes of one command: ranks, signals, children and their supervision, rendezvous, SLURM."""
