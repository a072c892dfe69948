"""The processes of one command: ranks, signals, torchrun, devices."""
