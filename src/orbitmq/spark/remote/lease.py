"""A lock in an object store: an object that its owner makes, and writes again as long as he lives.

Nobody's clock is compared with another's. Whoever finds the object watches it: if it does not change for as
long as a lease lasts, its owner is gone (killed, or asleep), and is replaced by a put that only one can do.
"""

import json
import os
import platform
import threading
import time
import uuid
from typing import Any, Final, Self

from orbitmq.errors import PipelineError, StoreError, StoreLockedError
from orbitmq.spark.remote.objects import Objects

LEASE_SECONDS: Final = 20.0
RENEWALS: Final = 5
"""In the time of a lease."""


class Lease:
    """A lock that one process holds. A thread renews it; everything else is for the thread that took it."""

    def __init__(self, objects: Objects, name: str, seconds: float | None = None) -> None:
        self._objects, self._name = objects, name
        self._seconds = LEASE_SECONDS if seconds is None else seconds
        self._owner: dict[str, Any] = {
            "owner": uuid.uuid4().hex,
            "host": platform.node(),
            "process": os.getpid(),
            "renewed": 0,
        }
        self._tag: str | None = None
        self._renewed = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="orbitmq-lease", daemon=True)

    def __enter__(self) -> Self:
        self._renewed = time.monotonic()
        self._tag = self._objects.create(self._name, self._content()) or self._taken_over()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        found = self._objects.read_tagged(self._name)
        if found is not None and found[1] == self._tag:
            self._objects.delete([self._name])

    def require_held(self) -> None:
        """Raise PipelineError if somebody else may have the lock by now."""
        if self._tag is None or time.monotonic() - self._renewed >= self._seconds:
            what = f"{self._objects.address} was not ours any more: this process slept for too long"
            raise PipelineError(what, "Nothing was changed; run the command again.")

    def _content(self) -> bytes:
        return json.dumps(self._owner).encode()

    def _taken_over(self) -> str:
        """Return the tag of the lock of an owner who is gone. StoreLockedError: he is not."""
        before = self._objects.read_tagged(self._name)
        deadline = time.monotonic() + self._seconds
        while before is not None:
            self._over.wait(self._seconds / RENEWALS / 2)
            found = self._objects.read_tagged(self._name)
            if found is None:
                break
            if found[1] != before[1]:
                raise self._locked(found[0])
            if time.monotonic() >= deadline:
                self._renewed = time.monotonic()
                tag = self._objects.put(self._name, self._content(), tag=found[1])
                if tag is None:
                    raise self._locked(found[0])
                return tag
        self._renewed = time.monotonic()
        made = self._objects.create(self._name, self._content())
        if made is None:
            raise self._locked(b"{}")
        return made

    def _locked(self, content: bytes) -> StoreLockedError:
        try:
            owner = json.loads(content)
        except ValueError:
            owner = {}
        who = f"process {owner.get('process', '?')} on {owner.get('host', '?')}"
        what = f"another export has this lake ({who})"
        return StoreLockedError(self._objects.address.url, what, "Wait until it is done.")

    def _renew(self) -> None:
        while not self._over.wait(self._seconds / RENEWALS):
            start = time.monotonic()
            self._owner["renewed"] += 1
            try:
                self._tag = self._objects.put(self._name, self._content(), tag=self._tag)
            except StoreError:
                continue  # the server may answer again before the lease is over
            if self._tag is None:
                return
            self._renewed = start
