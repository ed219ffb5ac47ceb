"""Python workers whose tasks a test can make fail or wait.

    spark.python.daemon.module=faulty_workers, with this directory on the PYTHONPATH of driver and executors
    ORBITMQ_TEST_FAULTS={"calls": DIRECTORY, "scan": {"0": "fail", "1": "linger"}, "build": {"0": "hold"}}

So a test can use the command itself: what it runs knows nothing of this. Each attempt of a task leaves a
file `<stage><task>-<attempt>` with the process id of its executor in the directory. What the first attempt
of a task does, once in the life of the directory:
  fail      fails
  linger    does not end by itself: a second attempt has to (speculation)
  hold      does not end by itself: somebody has to kill its executor
And what every attempt of all tasks ("*") does, so that a kill at any moment finds some at work:
  slow 0.5  takes so many seconds longer
"""

import functools
import importlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark import TaskContext

from orbitmq.spark.start import daemon

STAGES = {
    "scan": ("orbitmq.spark.jobs.rebuild.parts", "Scan", "__call__"),
    "build": ("orbitmq.spark.jobs.rebuild.build", "Build", "__call__"),
    "encode": ("orbitmq.spark.jobs.load.encode_task", "Encode", "__call__"),
    "place": ("orbitmq.spark.jobs.load.place_task", "Place", "__call__"),
    "index": ("orbitmq.store.verify.index_chains", "", "check_index_file"),
    "log": ("orbitmq.spark.jobs.verify.scan", "", "scan_split"),
    "queues": ("orbitmq.spark.jobs.verify.runner", "", "compare_queues"),
    "export": ("orbitmq.spark.jobs.export.log_task", "LogExport", "__call__"),
    "tail": ("orbitmq.spark.jobs.dispatch.source", "TailReader", "read"),
    "rows": ("orbitmq.spark.sink.writers", "", "stage"),
}
WAIT_SECONDS = 200.0
EXECUTOR = os.getppid()


def main() -> None:
    faults = json.loads(os.environ["ORBITMQ_TEST_FAULTS"])
    for stage, (module, owner, name) in STAGES.items():
        place: Any = importlib.import_module(module)
        place = getattr(place, owner) if owner else place
        run = getattr(place, name)
        setattr(place, name, _with_fault(run, stage, faults.get(stage, {}), Path(faults["calls"])))
    daemon.main()


def _with_fault(
    run: Callable[..., Any], stage: str, faults: dict[str, str], calls: Path
) -> Callable[..., Any]:
    @functools.wraps(run)
    def call(*arguments: Any, **options: Any) -> Any:
        context = TaskContext.get()
        if context is not None:
            task, attempt = context.partitionId(), context.attemptNumber()
            _note(calls, f"{stage}{task}-{attempt}", faults.get(str(task)) if not attempt else None)
            if "*" in faults:
                time.sleep(float(faults["*"].removeprefix("slow ")))  # sleep: to be killed
        return run(*arguments, **options)

    return call


def _note(calls: Path, name: str, fault: str | None) -> None:
    made = calls / f"{name}.{os.getpid()}"
    made.write_text(str(EXECUTOR))
    try:
        os.link(made, calls / name)
    except FileExistsError:  # the next part of the same task, or a later batch
        return
    finally:
        made.unlink()
    if fault == "fail":
        raise RuntimeError("this task fails once")
    if fault is not None:
        time.sleep(WAIT_SECONDS)  # sleep: it is there to be ended by somebody else
        raise RuntimeError(f"nobody has ended the attempt that should {fault}")


if __name__ == "__main__":
    main()
