"""A command in several processes of this machine, started and supervised by torchrun's agent."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
from collections.abc import Sequence

from zoo.launch.devices import cpu_cores
from zoo.launch.ranks import INTERRUPTED

SHUTDOWN_SECONDS = 180
"""After a signal the processes finish and save their step; the agent kills them after this time."""


def launch(arguments: Sequence[str], processes: int) -> int:
    """Run `zoo ARGUMENTS` in several processes and return its exit code: the code of the first that fails.

    The agent forwards signals to all processes, and ends the others when one has failed.
    """
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cpu_cores() // processes)))
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(SHUTDOWN_SECONDS))
    signals = "SIGTERM,SIGINT,SIGHUP,SIGQUIT" + (",SIGUSR1" if "SLURM_JOB_ID" in os.environ else "")
    logging.disable(logging.ERROR)  # of the agent, which logs each signal and exit code
    try:
        with tempfile.TemporaryDirectory(prefix="zoo_") as logs:
            config = LaunchConfig(
                min_nodes=1, max_nodes=1, nproc_per_node=processes, max_restarts=0, run_id="zoo",
                rdzv_backend="c10d", rdzv_endpoint="localhost:0", local_addr="127.0.0.1",
                signals_to_handle=signals, logs_specs=DefaultLogsSpecs(log_dir=logs),
            )  # fmt: skip
            elastic_launch(config, sys.executable)("-m", "zoo", *arguments)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode > 0:
            return failure.exitcode  # the process has reported the reason
        name = signal.Signals(-failure.exitcode).name
        print(f"process {rank} was killed by {name}", file=sys.stderr)
        return 1
    except SignalException:
        return INTERRUPTED
    finally:
        logging.disable(logging.NOTSET)
    return 0
