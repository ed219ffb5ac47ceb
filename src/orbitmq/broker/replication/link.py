"""ReplicaLink: one replica at a primary's HA port; it gets the log from where it says that its own ends.

The log is sent as it lies in the segments, so many bytes in a frame (haTransferBatchSize), as far as it is
visible; when much waits, in larger frames, for both sides have work to do for each. Those are sent by
sendfile, without a copy. What was appended a moment ago is in memory and is sent from the event loop: at
once when a producer's answer waits for replicas, else with the next round of dispatch. A replica that is far
behind needs pages that may be on disk only: a thread reads those ahead, and the loop waits for none.

A report that is beyond what was sent, goes back, or asks for what the log does not have closes the
connection, and counts nothing: answers to producers wait for reports.
"""

import asyncio
import logging
from typing import Final, Protocol, cast

import numpy as np

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.replication.rate import ByteRate
from orbitmq.clock import Clock
from orbitmq.format.ha_frame import HEADER, REPORT
from orbitmq.net.file_parts import FilePart, PartSender
from orbitmq.store.replication import Replication
from orbitmq.units import KiB, MiB
from orbitmq.wire.bodies.failover import Member
from orbitmq.wire.bodies.replication import ReplicaConnection

logger = logging.getLogger(__name__)

BEHIND_BYTES: Final = 64 * MiB
"""Who is further behind gets bytes that may not be in memory."""
LOAD_BYTES: Final = 2 * MiB
"""So much is read into memory at a time."""
LARGE_FRAME_BYTES: Final = 256 * KiB
"""Of so much that waits to be sent a large frame is made, of more one as large as may be."""
LARGE_FRAME_BYTES_MAX: Final = 1 * MiB
UNSENT_BYTES_MAX: Final = 1 * MiB
"""A replica that does not take what was sent gets no more for now."""
_STEP: Final = 512  # bytes from one that is touched to the next: a page is never left out


class ReplicaOwner(Protocol):
    """Who has the links of a primary."""

    config: BrokerConfig
    clock: Clock
    log: Replication
    loop: asyncio.AbstractEventLoop

    def on_open(self, link: "ReplicaLink") -> None: ...

    def member_of(self, token: int) -> Member | None: ...

    def on_report(self, link: "ReplicaLink", log_offset: int) -> None: ...

    def on_lost(self, link: "ReplicaLink") -> None: ...

    def on_gone(self, link: "ReplicaLink") -> None: ...


class ReplicaLink(asyncio.Protocol):
    """A connection of a replica. Belongs to the event loop's thread."""

    def __init__(self, owner: ReplicaOwner) -> None:
        self._owner, self._log = owner, owner.log
        self._transport: asyncio.Transport | None = None
        self._sender: PartSender | None = None
        self.peer = "?"
        self.next_offset = -1  # of what is sent next; -1: nothing was asked for yet
        self.reported = -1
        self.member: Member | None = None  # who it is, if it has said so (failover)
        self._cut = b""  # of a report
        self._paused = self._loading = False
        self._loaded_offset = 0  # everything before was read into memory, or is new
        self._read_ms = self._sent_ms = owner.clock.monotonic_ms()
        self._rate = ByteRate(owner.clock)

    # --- the connection ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if peer else "?"
        self._sender = PartSender(self._transport)
        # All of it has to leave before more is sent: what is sent behind nothing goes by sendfile.
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX, low=0)
        self._owner.on_open(self)

    def connection_lost(self, error: Exception | None) -> None:
        if self._sender is not None:
            self._sender.close()
        if self._transport is not None:
            self._transport = None
            logger.info("replica %s: gone, at log offset %d", self.peer, self.reported)
            self._owner.on_lost(self)
        self._owner.on_gone(self)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self.send()

    def close(self, reason: str = "") -> None:
        """End the connection at once; what was not sent yet is not."""
        transport, self._transport = self._transport, None
        if transport is not None:
            if reason:
                logger.warning("replica %s: closed: %s", self.peer, reason)
            transport.abort()
            self._owner.on_lost(self)

    # --- reports ---

    def data_received(self, data: bytes) -> None:
        self._read_ms = self._owner.clock.monotonic_ms()
        data = self._cut + data
        whole = len(data) - len(data) % REPORT.size
        self._cut = data[whole:]
        before = self.reported
        for (log_offset,) in REPORT.iter_unpack(data[:whole]):
            if log_offset < 0 and self.next_offset < 0 and self.member is None:
                self.member = self._owner.member_of(-log_offset)
                if self.member is not None:
                    continue
            problem = self._problem(log_offset)
            if problem:
                self.close(problem)
                return
            self.reported = log_offset
        if self.reported > before:
            self._owner.on_report(self, self.reported)
        if before < 0:
            self.send()  # later on new records call for that: a send for each report makes many small frames

    def _problem(self, log_offset: int) -> str:
        """Return why a report cannot be; empty: it can. The first one says where to begin."""
        if self.next_offset < 0:
            return self._begin(log_offset)
        if log_offset > self.next_offset:
            return f"it reports log offset {log_offset}, and was sent {self.next_offset}"
        if log_offset < self.reported:
            return f"it reports log offset {log_offset}, after {self.reported}"
        return ""

    def _begin(self, log_offset: int) -> str:
        first, end = self._log.first_offset, self._log.visible_offset
        if log_offset == 0:
            self.next_offset = first
        elif first <= log_offset <= end:
            self.next_offset = log_offset
        else:
            return (
                f"its log ends at {log_offset}, and this one has {first} to {end}: "
                "it is another log, or parts of it are gone; give the replica an empty store"
            )
        logger.info("replica %s: gets the log from %d on", self.peer, self.next_offset)
        return ""

    def status(self, end: int, *, in_sync: bool) -> ReplicaConnection:
        """Return what tools are told of it; the log ends there."""
        return ReplicaConnection(
            addr=self.peer,
            slave_ack_offset=self.reported,
            diff=end - self.reported,
            in_sync=in_sync,
            transferred_byte_in_second=self._rate.per_second,
            transfer_from_where=self.next_offset,
        )

    # --- the log ---

    def send(self) -> None:
        """Send what there is, until the replica takes no more."""
        while self._transport is not None and self.next_offset >= 0:
            if self._paused:
                return
            bytes_max = self._bytes_max()
            if not bytes_max:
                return
            span = self._log.read(self.next_offset, bytes_max)
            if span is None:
                if self.next_offset < self._log.first_offset:
                    self.close(f"log offset {self.next_offset} was cleaned before it was sent")
                return
            self._write(FilePart(*span))

    def _write(self, part: FilePart | None) -> None:
        """Send a frame with these bytes of the log, or with none."""
        assert self._transport is not None
        assert self._sender is not None
        length = 0 if part is None else len(part.view)
        header = HEADER.pack(self.next_offset, length)
        if part is None:
            self._transport.write(header)
        elif length >= LARGE_FRAME_BYTES:
            self._sender.send([header, part])
        else:
            self._transport.write(header)
            self._transport.write(part.view)
        self.next_offset += length
        self._rate.add(len(header) + length)
        self._sent_ms = self._owner.clock.monotonic_ms()

    def _bytes_max(self) -> int:
        """Return how much may be in the next frame; 0: it is not in memory yet, a thread sees to that."""
        start, batch = self.next_offset, self._owner.config.ha_batch_bytes
        waiting = self._log.visible_offset - start
        if waiting >= LARGE_FRAME_BYTES:
            batch = max(batch, min(waiting, LARGE_FRAME_BYTES_MAX))
        if waiting <= BEHIND_BYTES:
            return batch
        ahead = max(self._loaded_offset, start)
        if not self._loading and ahead < start + LOAD_BYTES and not self._load(ahead):
            return batch  # it was cleaned
        return min(batch, max(self._loaded_offset - start, 0))

    def _load(self, start: int) -> bool:
        span = self._log.read(start, LOAD_BYTES)
        if span is None:
            return False
        end = start + len(span.view)
        self._loading = True
        loading = self._owner.loop.run_in_executor(None, load, span.view)
        loading.add_done_callback(lambda done: self._on_loaded(end))
        return True

    def _on_loaded(self, end: int) -> None:
        self._loading, self._loaded_offset = False, end
        self.send()

    def tick(self) -> None:
        """Send what was missed; a heartbeat if nothing was sent for long; end who is silent."""
        config, now = self._owner.config, self._owner.clock.monotonic_ms()
        if now - self._read_ms > config.ha_silence_ms:
            self.close(f"silent for {config.ha_silence_ms} ms (haHousekeepingInterval)")
            return
        self.send()
        waits = self._transport is None or self._paused or self.next_offset < 0
        if not waits and now - self._sent_ms >= config.ha_heartbeat_ms:
            self._write(None)


def load(view: memoryview) -> int:
    """Touch every page of these bytes, so that they are in memory."""
    return int(np.frombuffer(view, dtype=np.uint8)[::_STEP].sum())
