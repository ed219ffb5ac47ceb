"""Epochs: which range of the log was written under which primary. The file is ours: orbitmq.epochs.

{"epochs": [{"number": 1, "start": 0, "id": "5f..."}, {"number": 2, "start": 8192, "id": "a0..."}], ...}

An epoch begins at log offset `start` and ends where the next one begins. A promotion makes the next number.
A primary that was not stopped in order goes on under its number, but with an epoch of its own: what it
lost by a power cut a replica may have. The id tells two epochs of one number apart, and two logs.

Everything before the first epoch was written before there were any.
"""

import json
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from orbitmq.errors import StateFileError
from orbitmq.files.disk import Disk
from orbitmq.files.replace import read_whole, replace_file

EPOCHS_MAX: Final = 1000
"""So many of the newest are kept; older ones are of logs that no replica has any more."""
_STEP: Final = (
    "Restore the file from a backup, or remove it: then nothing is known of former primaries, and a "
    "replica should be given an empty store."
)


class Epoch(NamedTuple):
    """A range of the log."""

    number: int
    start: int  # log offset
    id: str

    @classmethod
    def new(cls, number: int, start: int) -> "Epoch":
        return cls(number, start, secrets.token_hex(8))


class Role(NamedTuple):
    """What a broker became, and what its configuration said then. Another one there ends it."""

    configured: str
    broker_role: str
    broker_id: int
    primary: str = ""  # of a broker that was demoted: whom it follows
    ha_primary: str = ""
    former: str = ""  # of one that was promoted: the primary before it, which is to hear of it
    others: Sequence[str] = ()  # replicas that have left that one, and are to hear of it too
    left_id: int = 0  # and the broker id that it had before
    settled: bool = False  # whether consumer offsets fit the new role already


class Identity(NamedTuple):
    """The log as a coordinator knows it (failover): an id that it has as long as it can have lost nothing."""

    member: str
    kept_by: str  # what its bytes outlive: see `kept_by`
    joined: bool = False  # the coordinator has named it


class Epochs(NamedTuple):
    """What the file holds."""

    epochs: tuple[Epoch, ...] = ()
    role: Role | None = None
    identity: Identity | None = None
    promised: int = 0  # a primary of a lower epoch than this is not followed

    @property
    def number(self) -> int:
        """The number of the newest epoch, 0: none."""
        return self.epochs[-1].number if self.epochs else 0

    @property
    def next_number(self) -> int:
        """The least number that a promotion may make."""
        return max(self.number, self.promised) + 1

    def began(self, start: int, *, promoted: bool, number: int = 0) -> "Epochs":
        """Return them with a new epoch from this log offset on; `number`: what a coordinator made it."""
        number = number or (max(self.number, 1) if not promoted else self.next_number)
        epochs = (*self.epochs, Epoch.new(number, start))
        return self._replace(epochs=epochs[-EPOCHS_MAX:])


ON_DISK: Final = "disk"
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def kept_by(*, sync_flush: bool, in_memory: bool) -> str:
    """Return what outlives the written bytes: nothing (disk), the machine's start, or this process.

    With sync flush they are on disk when they count. Else they are in the page cache, which a kill leaves
    and a power cut does not; of a transient pool (`in_memory`) they are in the process only.
    """
    if sync_flush:
        return ON_DISK
    try:
        boot = "" if in_memory else _BOOT_ID.read_text().strip()
    except OSError:
        boot = ""
    return boot or f"process {secrets.token_hex(8)}"


def identified(known: Identity | None, now_kept_by: str, *, clean: bool, lost: bool) -> Identity:
    """Return the identity of a log that was opened: a new one if it may lack what it had."""
    if known is None:
        return Identity(secrets.token_hex(8), now_kept_by)
    is_whole = clean or known.kept_by in (ON_DISK, now_kept_by)
    if lost or not is_whole:
        known = known._replace(member=secrets.token_hex(8))
    return known._replace(kept_by=now_kept_by)


class EpochFile:
    """The file of one store. Whoever has the store writes it."""

    def __init__(self, path: Path, disk: Disk | None = None) -> None:
        self._path, self._disk = path, disk or Disk()

    def read(self) -> Epochs:
        """Return what is kept; nothing, if there is no file. StateFileError: it cannot be understood."""
        data = read_whole(self._disk, self._path)
        if not data:
            return Epochs()
        try:
            return _epochs(json.loads(data))
        except (ValueError, TypeError, KeyError, AttributeError) as cause:
            raise StateFileError(self._path, f"holds no epochs: {cause}", _STEP) from cause

    def write(self, epochs: Epochs) -> None:
        """Keep these; they are on disk when this returns. StoreError: they are not."""
        value: dict[str, Any] = {"epochs": [epoch._asdict() for epoch in epochs.epochs]}
        if epochs.role is not None:
            value["role"] = epochs.role._asdict()
        if epochs.identity is not None:
            value["identity"] = epochs.identity._asdict()
        if epochs.promised:
            value["promised"] = epochs.promised
        replace_file(self._disk, self._path, json.dumps(value, indent=1).encode() + b"\n")


def _epochs(value: dict[str, Any]) -> Epochs:
    rows = [Epoch(int(e["number"]), int(e["start"]), str(e["id"])) for e in value["epochs"]]
    role = Role(**value["role"]) if value.get("role") is not None else None
    if role is not None:
        role = role._replace(others=tuple(map(str, role.others)))
    known = value.get("identity")
    identity = Identity(**known) if known is not None else None
    return Epochs(checked(rows), role, identity, int(value.get("promised", 0)))


def checked(epochs: Sequence[Epoch]) -> tuple[Epoch, ...]:
    """Return epochs of a file or of a peer. ValueError: no log has such."""
    before = Epoch(0, 0, "")
    for epoch in epochs:
        if epoch.number < max(before.number, 1) or epoch.start < before.start or not epoch.id:
            raise ValueError(f"epoch {epoch.number} at {epoch.start} behind {before}")
        before = epoch
    return tuple(epochs)


class Divergence(NamedTuple):
    """What a replica has to do before it follows."""

    refusal: str = ""  # why it must not follow; empty: it may
    cut: int = -1  # where its log has to be cut first; -1: nowhere


def compare(mine: Epochs, my_end: int, its: Sequence[Epoch], its_end: int) -> Divergence:
    """Find out whether a log is a beginning of its primary's, by the epochs of both."""
    if its and mine.number <= its[-1].number < mine.promised:
        what = f"its epoch is {its[-1].number}, and this replica has promised {mine.promised}"
        return Divergence(f"{what}: another one is to be the primary")
    if not mine.epochs:
        return Divergence()  # written before there were epochs: as the plain protocol has it
    if not its:
        return Divergence("it knows no epochs, and this log has some: another program wrote it")
    number = its[-1].number
    if number < mine.number:
        what = f"its epoch is {number}, and this log knows {mine.number}"
        return Divergence(f"{what}: it was a primary before, and is one no longer")
    if not my_end:
        return Divergence()
    if number == mine.number and _first(its, number) != _first(mine.epochs, number):
        what = f"another broker became the primary of epoch {number} too"
        return Divergence(f"{what}: promote the one that is to stay")
    shared = [place for place, epoch in enumerate(mine.epochs) if epoch in its]
    if not shared:
        return Divergence("its log is another one: they have no epoch in common")
    here, there = shared[-1], its.index(mine.epochs[shared[-1]])
    common = min(_end(mine.epochs, here, my_end), my_end, _end(its, there, its_end))
    if my_end <= common:
        return Divergence()
    if there + 1 == len(its) or its[there + 1].number == its[there].number:
        lost = f"this log has {my_end - common} bytes from log offset {common} on that it lost"
        return Divergence(f"{lost}: promote this replica, or give it an empty store")
    return Divergence(cut=common)


def _first(epochs: Sequence[Epoch], number: int) -> Epoch:
    """Return how a number began; epochs behind it are those of later starts."""
    return next(epoch for epoch in epochs if epoch.number == number)


def _end(epochs: Sequence[Epoch], place: int, log_end: int) -> int:
    return epochs[place + 1].start if place + 1 < len(epochs) else log_end
