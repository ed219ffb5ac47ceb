"""The log as a Spark table, and the jobs that run over it. Needs the extra `orbitmq[spark]`.

`session()` makes a Spark session that knows the format "orbitmq"; `register` adds it to one that is there.
`decode` makes values of bodies. `sql92` is what a consumer subscribes to, as a condition of Spark.
`query` is log and lake as one table. `rebuild`, `verify`, `audit`, `export`, `load` and `replay` are the
jobs of the commands of `orbitmq spark` that have these names.
"""

from typing import TYPE_CHECKING

from orbitmq.lazy import lazy_exports

if TYPE_CHECKING:
    from orbitmq.spark.bodies import decode
    from orbitmq.spark.jobs.audit.job import audit
    from orbitmq.spark.jobs.export.job import export
    from orbitmq.spark.jobs.load.job import LoadOptions, load
    from orbitmq.spark.jobs.query.job import query
    from orbitmq.spark.jobs.rebuild.job import rebuild
    from orbitmq.spark.jobs.replay.job import ReplayOptions, replay
    from orbitmq.spark.jobs.verify.job import verify
    from orbitmq.spark.source.metrics import read_metrics
    from orbitmq.spark.source.sql92_column import sql92
    from orbitmq.spark.start.session import make_session as session
    from orbitmq.spark.start.session import register

__all__ = [
    "LoadOptions",
    "ReplayOptions",
    "audit",
    "decode",
    "export",
    "load",
    "query",
    "read_metrics",
    "rebuild",
    "register",
    "replay",
    "session",
    "sql92",
    "verify",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "LoadOptions": "orbitmq.spark.jobs.load.job",
        "ReplayOptions": "orbitmq.spark.jobs.replay.job",
        "audit": "orbitmq.spark.jobs.audit.job",
        "decode": "orbitmq.spark.bodies",
        "export": "orbitmq.spark.jobs.export.job",
        "load": "orbitmq.spark.jobs.load.job",
        "query": "orbitmq.spark.jobs.query.job",
        "read_metrics": "orbitmq.spark.source.metrics",
        "rebuild": "orbitmq.spark.jobs.rebuild.job",
        "register": "orbitmq.spark.start.session",
        "replay": "orbitmq.spark.jobs.replay.job",
        "session": "orbitmq.spark.start.session:make_session",
        "sql92": "orbitmq.spark.source.sql92_column",
        "verify": "orbitmq.spark.jobs.verify.job",
    },
)
