"""The broker against RocketMQ's own, over real sockets.

    python bench/bench_broker.py [--size full|smoke] [--only NAME ...] [--directory DIR] [--json FILE]

A Java 5.3.3 broker (1 GB heap) and ours run beside each other and are driven by turns, so that both see the
same machine. Parts: start (cold start to the first acknowledged send, idle memory), raw (light driver,
sends made ahead, at several depths), sync (the same with sync flush), batch (client batches of 16), backlog
(pulls of what was sent), pop (pops of it, each message acknowledged by itself), filtered (pulls that want one
message in a hundred, by tag and by SQL92), timer (how late messages that wait for a time are), transactions
(half message and commit, 16 in flight), client (RocketMQ's own Java client: sends and a push consumer),
request (requests and their replies, by a light asker and replier, and by that client).

Every figure is checked: an answer that is no success, or a message too few, ends the run.
"""

import argparse
import json
import tempfile
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path

import harness
from broker_drive import SIZES, say
from broker_kinds import part_request, part_timer, part_transactions
from broker_reads import part_backlog, part_filtered, part_pop
from broker_sends import part_batch, part_client, part_raw, part_start, part_sync
from broker_sides import sharing
from compat.java_store import why_not
from harness import Line

PARTS = {
    "start": part_start,
    "raw": part_raw,
    "sync": part_sync,
    "batch": part_batch,
    "backlog": part_backlog,
    "pop": part_pop,
    "timer": part_timer,
    "transactions": part_transactions,
    "filtered": part_filtered,
    "client": part_client,
    "request": part_request,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--without-java", action="store_true", help="our side alone")
    parser.add_argument("--directory", type=Path, help="where the stores are made")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("options", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        _run_one(arguments.part, dict(option.split("=", 1) for option in arguments.options))
    else:
        _run_all(arguments)


def _run_one(part: str, options: dict[str, str]) -> None:
    """Run one part, our side alone, at one depth; print its figures as one row."""
    size = SIZES[options["size"]]
    if "depth" in options:
        size = replace(size, depths=(int(options["depth"]),))
    lines = PARTS[part](Path(options["root"]), size, ["ours"])
    print(json.dumps({line.what: line.ours for line in lines}))


def _run_all(arguments: argparse.Namespace) -> None:
    reason = why_not()
    kinds = ["ours"] if arguments.without_java or reason else ["java", "ours"]
    if reason and not arguments.without_java:
        say(f"without RocketMQ's side: {reason}")
    lines: list[Line] = []
    size = SIZES[arguments.size]
    with (
        tempfile.TemporaryDirectory(dir=arguments.directory) as scratch,
        sharing() if size.shares else nullcontext(),
    ):
        for name in arguments.only:
            if name == "client" and "java" not in kinds:
                continue
            say(f"{name}: {PARTS[name].__doc__}")
            lines += PARTS[name](Path(scratch) / name, size, kinds)
    print(harness.machine())
    print(harness.table(lines))
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(line) for line in lines], indent=1))


if __name__ == "__main__":
    main()
