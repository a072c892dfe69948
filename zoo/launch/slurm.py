"""Requeueing a SLURM job."""

from __future__ import annotations

import os
import subprocess


def requeue() -> str:
    """Put this job back into its queue; returns the outcome in words. SLURM may end this process at once."""
    job = os.environ["SLURM_JOB_ID"]
    command = ["scontrol", "requeue", job]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        why = str(error)
    else:
        if done.returncode == 0:
            return f"job {job} is requeued"
        why = (done.stderr or done.stdout).strip() or f"exit code {done.returncode}"
    return f"job {job} could not be requeued ({why}); continue by hand, with the command above"
