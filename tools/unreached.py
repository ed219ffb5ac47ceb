"""Finds code that the product does not reach: a test of it proves nothing about the product.

Functions, classes, methods and properties of src/ whose name stands nowhere else in src/ are reported,
unless OUTSIDE says who calls them. Give such code a caller, or delete it with its tests.
"""

import sys
from pathlib import Path

from vulture import Vulture

ROOT = Path(__file__).parents[1]
KINDS = {"function", "class", "method", "property"}

# Who calls what nothing in src/ calls: where it stands, and its names.
OUTSIDE: dict[str, dict[str, set[str]]] = {
    "asyncio, by its Protocol": {
        "net/connection.py": {
            *("connection_made", "data_received", "pause_writing", "resume_writing"),
        },
        "broker/replication/link.py": {
            *("connection_made", "data_received", "pause_writing", "resume_writing"),
        },
    },
    "logging, by its Handler": {
        "logs/server_log.py": {"handleError"},
    },
    "Python, when it makes a class": {
        "wire/headers/header.py": {"__init_subclass__"},
    },
    "PySpark, by its DataSource": {
        "spark/": {
            *(
                "streamReader",
                "streamWriter",
                "initialOffset",
                "getDefaultReadLimit",
                "latestOffset",
            ),
            *("reportLatestOffset", "prepareForTriggerAvailableNow"),
        },
        "spark/start/workers.py": {"readinto"},
    },
    "Lark, by its Transformer": {
        "sql92/grammar.py": {
            *("disjunction", "conjunction", "is_not_null", "not_one_of", "true", "false", "null"),
        },
    },
    "typer, by its decorators and groups": {
        "cli/__init__.py": {"demo"},
        "cli/commands.py": {"list_commands"},
        "cli/group.py": {"list_groups"},
        "cli/store.py": {"dump"},
        "cli/spark/prepare.py": {"run_jobs"},  # in a process of its own, by its name
    },
    "notebooks, to show a value": {
        "spark/jobs/audit/report.py": {"_repr_html_"},
    },
    "pytest, by its entry point": {
        "testing/pytest_plugin.py": {"orbitmq_broker", "orbitmq_session_broker"},
    },
    "users, in their programs and tests": {
        "client/admin/results.py": {"is_online", "earliest_ms"},
        "client/consumer/delivery.py": {"ack"},
        "client/consumer/idempotence.py": {"forget_old"},
        "client/producer/producer.py": {"send_batch"},
        "client/consumer/rebalance.py": {"MachineRoom", "MachineRoomNearby", "Fixed"},
        "client/producer/send_result.py": {"is_ok"},
        "format/message_id.py": {"decode_unique_id"},
        "spark/jobs/verify/job.py": {"findings_frame"},
        "spark/source/sql92_column.py": {"sql92"},
        "testing/": {"set_now_ms", "heal", "restart", "mixed_requests"},
    },
    # None of these is what a test proves: tests look at state with them, or speak the protocol.
    "tests, to look or to ask": {
        "broker/broker.py": {"fast_address"},
        "files/positioned.py": {"open_count"},
        "format/kernels.py": {"twins"},
        "format/record.py": {"to_request", "decode_blank"},
        "store/log/allocate.py": {"ready_offsets"},
        "wire/bodies/offsets.py": {"DelayOffsets"},
        "sql92/fast/kernels.py": {"twins", "wait"},
        "wire/fast/kernels.py": {"twins"},
        "wire/frame.py": {"waiting_bytes"},
        "wire/command.py": {"is_response"},
    },
}


def unreached(root: Path, outside: dict[str, dict[str, set[str]]]) -> list[str]:
    """Return one line for each piece of code that nothing in `root`/src names."""
    source = root / "src" / "orbitmq"
    finder = Vulture(ignore_decorators=["@answers"])  # of processors: the router calls them
    finder.scavenge([source])
    lines = []
    for item in finder.get_unused_code():
        path = Path(item.filename).relative_to(source).as_posix()
        if item.typ in KINDS and not called_from_outside(path, item.name, outside):
            place = f"src/orbitmq/{path}:{item.first_lineno}"
            lines.append(f"{place}: nothing in src calls the {item.typ} {item.name}")
    return lines


def called_from_outside(path: str, name: str, outside: dict[str, dict[str, set[str]]]) -> bool:
    return any(
        path.startswith(place) and name in names
        for callers in outside.values()
        for place, names in callers.items()
    )


def main() -> int:
    lines = unreached(ROOT, OUTSIDE)
    for line in lines:
        print(line)
    if lines:
        print(
            "Give each a caller in the product, or delete it with its tests; what users or a library"
            " call is listed in tools/unreached.py."
        )
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
