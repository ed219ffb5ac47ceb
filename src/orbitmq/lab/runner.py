"""Runs experiments, each in a directory of its own that is removed afterwards."""

import tempfile
import time
from pathlib import Path

from orbitmq.errors import io_error
from orbitmq.lab.experiment import Experiment, Lab, Progress, Result, Size
from orbitmq.lab.machine import machine_facts


def run_experiment(
    experiment: Experiment, size: Size, place: Path | None, progress: Progress
) -> Result:
    """Run one on the disk of `place` (None: where temporary files go).

    A StoreError says what the operating system refused, a full disk for example.
    """
    started = time.perf_counter()
    try:
        with tempfile.TemporaryDirectory(
            prefix=f"orbitmq-lab-{experiment.name}-", dir=place
        ) as name:
            directory = Path(name)
            lab = Lab(directory, size, progress)
            findings = experiment.run(lab)
            machine = machine_facts(directory)
    except OSError as cause:
        where = place or Path(tempfile.gettempdir())
        raise io_error(where, f"run the experiment {experiment.name}", cause) from cause
    seconds = time.perf_counter() - started
    return Result(experiment, size, seconds, findings, lab.checks, machine)
