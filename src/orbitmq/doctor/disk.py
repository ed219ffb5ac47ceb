"""Disks: how full they are beside the three limits, how the log grows, what goes next, who loses by it."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from orbitmq.doctor.report import Finding, Numbers, Severity
from orbitmq.store.config import StoreConfig
from orbitmq.units import HOUR_MS

SUBJECT = "disk"
HOURS_LEFT_MIN: Final = 24.0
GROWTH_SPAN_MIN_MS: Final = HOUR_MS  # a shorter log does not tell how fast it grows
LOSS_SOON_MS: Final = 24 * HOUR_MS
# A Java broker writes 1,5 GiB where people do.
_CAPACITY: Final = re.compile(r"Total : (\d+)(?:[.,](\d+))? ([KMGTPE]?)i?B")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The three limits, in per cent of a disk, and RocketMQ's names for them."""

    clean: int = 75  # diskMaxUsedSpaceRatio
    forced: int = 85  # diskSpaceCleanForciblyRatio
    refuse: int = 90  # diskSpaceWarningLevelRatio

    @classmethod
    def of(cls, config: StoreConfig) -> "Limits":
        forced = min(max(config.disk_forced, 30), 85)
        refuse = min(max(config.disk_warning, 35), 90)
        return cls(clean=config.disk_used_max, forced=forced, refuse=refuse)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskUse:
    """One disk; `per cent` as the broker counts it. Bytes are 0 where nobody tells them."""

    path: str
    used_per_cent: float
    total_bytes: int = 0
    used_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What a group has not read of the segments that go next."""

    group: str
    topic: str
    queue_id: int
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NextDeletion:
    """The segments that are deleted together next."""

    at_ms: int
    why: str
    segments: int
    first: str
    losses: Sequence[Loss] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFacts:
    """The disks of one store, and how its log grows."""

    disks: Sequence[DiskUse]
    limits: Limits
    now_ms: int
    log_bytes: int = 0
    first_ms: int = 0
    last_ms: int = 0
    deletion: NextDeletion | None = None
    where: str = ""

    @property
    def growth_per_hour(self) -> float | None:
        """Bytes by which the log grew per hour, None if it is too young to tell."""
        span = self.last_ms - self.first_ms
        if self.first_ms <= 0 or span < GROWTH_SPAN_MIN_MS:
            return None
        return self.log_bytes * HOUR_MS / span

    def hours_left(self, disk: DiskUse, limit: int) -> float | None:
        """Return after how many hours of such growth a disk reaches a limit."""
        growth = self.growth_per_hour
        if not growth or not disk.total_bytes:
            return None
        left = disk.total_bytes * limit / 100 - disk.used_bytes
        return round(max(left, 0) / growth, 1)


@dataclass(frozen=True, slots=True)
class DiskAdvice:
    """The commands that help: to keep less, and to see more."""

    keep_less: str
    show_groups: Callable[[str], str] = field(default=lambda group: "")


def examine(facts: DiskFacts, advice: DiskAdvice) -> Iterator[Finding]:
    """Yield disks over a limit or soon there, and groups that lose what they have not read."""
    for disk in facts.disks:
        yield from _full(facts, disk, advice)
    deletion = facts.deletion
    if deletion is not None and deletion.at_ms - facts.now_ms <= LOSS_SOON_MS:
        for loss in deletion.losses:
            yield _loss(facts, deletion, loss, advice)


def summary(facts: DiskFacts) -> str:
    """Return in one line how full the disks are, how the log grows and what is deleted next."""
    limits = facts.limits
    parts = [f"{disk.used_per_cent:g} % of {disk.path} used" for disk in facts.disks]
    parts.append(f"limits {limits.clean}, {limits.forced} and {limits.refuse} %")
    if (growth := facts.growth_per_hour) is not None:
        parts.append(f"the log grows by {round(growth)} bytes an hour")
        parts += [
            f"{hours:g} hours to {limits.forced} % of {disk.path}"
            for disk in facts.disks
            if (hours := facts.hours_left(disk, limits.forced)) is not None
        ]
    if facts.deletion is not None:
        when = datetime.fromtimestamp(facts.deletion.at_ms / 1000).astimezone()
        parts.append(f"next deletion {when.isoformat(timespec='minutes')}")
    return ", ".join(parts)


def _full(facts: DiskFacts, disk: DiskUse, advice: DiskAdvice) -> Iterator[Finding]:
    limits, used = facts.limits, disk.used_per_cent
    numbers = _numbers(facts, disk)
    if used > limits.refuse:
        severity, what = Severity.CRITICAL, "the disk is so full that sends are refused"
        meaning = "no message is taken until segments are deleted or space is made"
    elif used > limits.forced:
        severity, what = Severity.CRITICAL, "the disk is so full that messages go before their time"
        meaning = "the oldest segments are deleted although their time to be kept is not over"
    elif used > limits.clean:
        severity, what = Severity.WARNING, "the disk is fuller than it should be"
        meaning = "expired segments are deleted at any hour; what has not expired stays"
    elif _is_soon(facts, disk):
        severity, what = Severity.WARNING, "the disk is full within a day"
        meaning = "at this growth messages will be deleted before their time"
    else:
        return
    yield Finding(
        severity=severity,
        subject=SUBJECT,
        what=what,
        where=f"{facts.where}{disk.path}",
        numbers=numbers,
        meaning=meaning,
        command=advice.keep_less,
    )


def _is_soon(facts: DiskFacts, disk: DiskUse) -> bool:
    hours = facts.hours_left(disk, facts.limits.forced)
    return hours is not None and hours < HOURS_LEFT_MIN


def _numbers(facts: DiskFacts, disk: DiskUse) -> Numbers:
    limits = facts.limits
    numbers: Numbers = {
        "used_per_cent": disk.used_per_cent,
        "limits_per_cent": f"{limits.clean} {limits.forced} {limits.refuse}",
    }
    if (growth := facts.growth_per_hour) is not None:
        numbers["growth_bytes_per_hour"] = round(growth)
        hours = [
            facts.hours_left(disk, limit) for limit in (limits.clean, limits.forced, limits.refuse)
        ]
        if None not in hours:
            numbers["hours_left"] = " ".join(str(one) for one in hours)
    if facts.deletion is not None:
        numbers["next_deletion_segments"] = facts.deletion.segments
    return numbers


def _loss(facts: DiskFacts, deletion: NextDeletion, loss: Loss, advice: DiskAdvice) -> Finding:
    when = datetime.fromtimestamp(deletion.at_ms / 1000).astimezone().isoformat(timespec="minutes")
    return Finding(
        severity=Severity.WARNING,
        subject=SUBJECT,
        what="a group is about to lose messages that it has not read",
        where=f"{facts.where}group {loss.group}, {loss.topic}, queue {loss.queue_id}",
        numbers={
            "unread_messages": loss.messages,
            "bytes_at_risk": loss.bytes,
            "deleted_at": when,
            "segments": deletion.segments,
        },
        meaning=f"segment {deletion.first} goes {when} ({deletion.why}), read or not",
        command=advice.show_groups(loss.group),
    )


def capacity_bytes(text: str) -> int:
    """Return the size in "Total : 251.9 GiB, Free : 43.2 GiB.", 0 if it has none.

    To a digit behind the point, which is as much as a forecast from growth needs.
    """
    found = _CAPACITY.match(text)
    if found is None:
        return 0
    whole, part, unit = found.groups()
    power = " KMGTPE".index(unit or " ")
    return round(float(f"{whole}.{part or 0}") * (1 << 10 * power))


def next_delete_hour(hours: Sequence[int], from_ms: int) -> int:
    """Return the first moment from `from_ms` on whose local hour is one of these."""
    moment = datetime.fromtimestamp(from_ms / 1000).astimezone()
    for _ in range(25):
        if moment.hour in hours:
            return round(moment.timestamp() * 1000)
        moment = (moment + timedelta(hours=1)).replace(minute=0, second=0, microsecond=0)
    return from_ms
