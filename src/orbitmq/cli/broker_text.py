"""Replicas and services of brokers, printed."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from orbitmq.cli.output import (
    Output,
    bytes_text,
    note,
    print_json,
    print_lines,
    print_table,
    time_text,
)

if TYPE_CHECKING:
    from orbitmq.client.admin.results import LogCopy, Promotion
    from orbitmq.wire.bodies.failover import FailoverTold


def services_of(runtime: Mapping[str, str]) -> dict[str, str]:
    """Return the states of services among a broker's figures, by name."""
    from orbitmq.wire.bodies.lists import SERVICE_PREFIX

    return {
        name.removeprefix(SERVICE_PREFIX): state
        for name, state in sorted(runtime.items())
        if name.startswith(SERVICE_PREFIX)
    }


def print_services(broker: str, states: Mapping[str, str], output: Output) -> None:
    if output is Output.JSON:
        print_json({"broker": broker, "services": states})
    else:
        print_table(["service", "state"], list(states.items()), title=broker)


def print_promotion(done: "Promotion", output: Output) -> None:
    if output is Output.JSON:
        print_json(asdict(done))
        return
    print_lines([f"{done.address}: primary of epoch {done.epoch}, from log offset {done.start} on"])
    if done.lacked_bytes:
        note(f"the former primary had {bytes_text(done.lacked_bytes)} more: they are lost here")


def print_copies(copies: "Sequence[LogCopy]", output: Output) -> None:
    """Print logs and their copies; as JSON one line for each."""
    if output is Output.JSON:
        for copy in copies:
            print_json(_value(copy))
        return
    columns = ["broker", "role", "address", "log end", "gap", "in sync", "rate", "last heard"]
    rows = [_row(copy) for copy in copies]
    if any(copy.failover is not None for copy in copies):
        columns.append("failover")
        rows = [[*r, _failover_text(copy.failover)] for r, copy in zip(rows, copies, strict=True)]
    rows = [[*r, copy.error] for r, copy in zip(rows, copies, strict=True)]
    print_table([*columns, "error"], rows)


def _value(copy: "LogCopy") -> dict[str, Any]:
    """Return what JSON shows. The names are an interface: scripts read them."""
    return {
        "broker": copy.broker_name,
        "role": copy.role,
        "address": copy.address,
        "log_end": copy.log_end,
        "gap_bytes": copy.gap_bytes,
        "in_sync": copy.in_sync,
        "connected": copy.connected,
        "bytes_per_second": copy.bytes_per_second,
        "last_heard_ms": copy.last_heard_ms,
        "follows": copy.follows,
        "failover": _failover_value(copy.failover),
        "error": copy.error,
    }


def _failover_value(told: "FailoverTold | None") -> dict[str, Any] | None:
    if told is None:
        return None
    return {
        "coordinator": told.coordinator,
        "reached": told.known,
        "state": told.state,
        "epoch": told.epoch,
        "lease_ms": told.lease_ms,
        "may_be_primary": told.may,
        "in_sync": told.in_sync,
    }


def _failover_text(told: "FailoverTold | None") -> str:
    if told is None:
        return ""
    return f"{told.state} for {told.lease_ms / 1000:.1f} s" if told.lease_ms else told.state


def _row(copy: "LogCopy") -> list[object]:
    words = {None: "?", True: "yes", False: "no"}
    return [
        copy.broker_name,
        copy.role,
        copy.address,
        copy.log_end,
        "?" if copy.gap_bytes is None else bytes_text(copy.gap_bytes),
        words[copy.in_sync],
        f"{bytes_text(copy.bytes_per_second)}/s",
        time_text(copy.last_heard_ms),
    ]
