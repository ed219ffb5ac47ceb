"""Replica: follows a primary in a thread of its own and writes its log (brokerRole=SLAVE).

It connects, says where its log ends, and writes what comes at exactly those offsets. After each read it
reports how far its log is whole; with sync flush, how far it is on disk. Whatever goes wrong ends the
connection with a sentence in the log, and it tries again: the primary's answer to the first report decides
where it goes on, so nothing has to be remembered.
"""

import logging
import socket
import struct
import threading
from typing import Final, NamedTuple

from orbitmq.broker.context import BrokerContext
from orbitmq.broker.replication.agreement import Agreement, CutError
from orbitmq.broker.replication.rate import ByteRate
from orbitmq.broker.replication.succession import Succession
from orbitmq.errors import FormatError, OrbitError, RemoteProtocolError
from orbitmq.format.ha_frame import BATCH_BYTES_MAX, FRAME_BYTES_MAX, HEADER, REPORT
from orbitmq.units import SECOND_MS, MiB
from orbitmq.wire.bodies.failover import Member
from orbitmq.wire.bodies.replication import PrimaryConnection, ReplicationStatus
from orbitmq.wire.headers.registration import RegisterBrokerAnswer

logger = logging.getLogger(__name__)

CONNECT_MS: Final = 3 * SECOND_MS
READ_MS: Final = 100
"""So long a read waits before the time is looked at."""
AGAIN_MS: Final = 1 * SECOND_MS
AGAIN_MS_MAX: Final = 5 * SECOND_MS
"""How long after a failure the next connection is tried; RocketMQ waits for 5 s each time."""
UNREPORTED_BYTES_MAX: Final = 1 * MiB
"""After so much a report is due, though more has come."""
_STOP_MS: Final = 10 * SECOND_MS


class _Order(NamedTuple):
    """Whom to follow, whoever is followed now. Each order has another number."""

    number: int
    primary: str


class Replica:
    """The thread that keeps a replica's log as long as its primary's."""

    def __init__(self, context: BrokerContext, succession: Succession) -> None:
        self._loop, self._succession = context.loop, succession
        self._agreement = Agreement(succession, context.store, context.config.name)
        self._config, self._clock = context.config, context.clock
        self._store, self._log = context.store, context.store.replication
        self._flush = context.store.config.sync_flush
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        decided = succession.decided
        self._primary = context.config.ha_primary or (decided.ha_primary if decided else "")
        self.address = context.config.primary_address or (decided.primary if decided else "")
        """Where the primary answers requests; empty: no name server has told it yet."""
        self.hello = Member(id="", address=context.address).encode()
        """Who this is, for the primary; a member of failover has an id."""
        self._order = _Order(0, "")
        self.primary_end = 0
        """How long the primary's log was when it last told; 0: it never did."""
        self._told = ""  # the last failure, told once
        self._buffer = bytearray(2 * FRAME_BYTES_MAX)
        self._reported, self._reported_ms = 0, 0.0
        self.connected = False
        self._rate = ByteRate(self._clock)
        self._read_at_ms = self._wrote_at_ms = 0  # by the wall clock, for tools; 0: never

    def use_primary(self, where: RegisterBrokerAnswer) -> None:
        """Follow the primary that a name server tells; haMasterAddress and primaryAddress are stronger."""
        if not self._config.ha_primary and where.ha_server_addr:
            self._primary = where.ha_server_addr
        self.address = self._config.primary_address or where.master_addr or self.address

    def follow(self, where: RegisterBrokerAnswer) -> None:
        """Follow this primary, whoever is followed now: a coordinator says so, or it came after that one."""
        self.use_primary(where)
        self._order = _Order(self._order.number + 1, self._primary)

    def start(self) -> None:
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, name="orbitmq-replica", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the connection; what came is in the log."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(_STOP_MS / 1000)
            self._thread = None

    # --- for tools ---

    @property
    def state(self) -> str:
        """What the list of services tells of it: why it does not follow, if it does not."""
        if self._thread is None or not self._thread.is_alive():
            return "stopped"
        if self.connected:
            return f"running, follows {self._primary}"
        return f"running, {self._told or 'looks for its primary'}"

    def status(self) -> ReplicationStatus:
        """Return how far the copy is; the primary's flush offset stays 0, as in RocketMQ's plain mode."""
        connection = PrimaryConnection(
            master_addr=self._primary or None,
            transferred_byte_in_second=self._rate.per_second,
            max_offset=self._store.max_log_offset,
            last_read_timestamp=self._read_at_ms,
            last_write_timestamp=self._wrote_at_ms,
        )
        return ReplicationStatus(ha_client_runtime_info=connection)

    @property
    def lacks(self) -> int:
        """How many bytes the primary had more when it last told."""
        return max(0, self.primary_end - self._store.max_log_offset)

    def promotion_problem(self) -> str:
        """Return why this replica should not become the primary; empty: it may."""
        if self.connected:
            return f"its primary {self._primary} is alive: stop that one first"
        if not self._read_at_ms:
            return "it has not heard of its primary since its start: nobody knows what it lacks"
        if self.lacks >= self._config.in_sync_gap_bytes:
            return f"it is not in sync: it lacks {self.lacks} bytes (haMaxGapNotInSync)"
        return ""

    # --- the thread ---

    def _run(self) -> None:
        wait_ms = AGAIN_MS
        while not self._stopping.is_set():
            order = self._order  # read first: an order that comes now is another one
            primary = self._primary
            if primary:
                try:
                    self._follow(primary, order)
                except (OrbitError, OSError) as error:
                    self._tell(primary, error)
                except Exception:
                    logger.exception("primary %s: the replica failed, tried again", primary)
                wait_ms = AGAIN_MS if self.connected else min(2 * wait_ms, AGAIN_MS_MAX)
                self.connected = False
            self._pause(primary, wait_ms if primary else READ_MS)

    def _pause(self, primary: str, wait_ms: float) -> None:
        """Wait before the next try, shorter if there is another primary to follow."""
        until_ms = self._clock.monotonic_ms() + wait_ms
        while self._primary == primary and not self._stopping.is_set():
            left_ms = until_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                return
            self._clock.wait(self._stopping, min(left_ms, READ_MS))

    def _tell(self, primary: str, error: Exception) -> None:
        text = f"primary {primary}: not followed, tried again: {error}"
        if text != self._told:
            logger.warning("%s", text)
            self._told = text

    def _follow(self, primary: str, order: _Order) -> None:
        host, _, port = primary.rpartition(":")
        address = host.strip("[]"), int(port)
        with socket.create_connection(address, CONNECT_MS / 1000) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _limit_times(connection)
            try:
                agreed = self._agreement.reach(self.address, self.hello)
            except CutError as cut:
                self._loop.call_soon_threadsafe(self._succession.restart, str(cut))
                self._stopping.wait()
                raise
            self.primary_end = agreed.log_end
            if agreed.token:
                connection.sendall(REPORT.pack(-agreed.token))
            begin = self._log.begin()
            self._report(connection, begin)
            logger.info("primary %s: followed from log offset %d on", primary, begin)
            self._told, self.connected = "", True
            self._receive(connection, primary, order)

    def _report(self, connection: socket.socket, log_offset: int) -> None:
        try:
            connection.sendall(REPORT.pack(log_offset))
        except BlockingIOError:
            raise ConnectionError(f"it took no report for {CONNECT_MS} ms") from None
        self._reported, self._reported_ms = log_offset, self._clock.monotonic_ms()
        self._wrote_at_ms = self._clock.now_ms()

    def _receive(self, connection: socket.socket, primary: str, order: _Order) -> None:
        filled, view = 0, memoryview(self._buffer)
        heard_ms = self._clock.monotonic_ms()
        while not self._stopping.is_set():
            count = _read(connection, view[filled:])
            now_ms = self._clock.monotonic_ms()
            if count == 0:
                raise ConnectionError("it closed the connection")
            if self._order != order and self._order.primary != primary:
                raise ConnectionError(f"{self._order.primary} is the primary now")
            if count > 0:
                heard_ms, self._read_at_ms = now_ms, self._clock.now_ms()
                self._rate.add(count)
                filled = self._take_frames(view, filled + count)
                filled = self._take_more(connection, view, filled)
            elif now_ms - heard_ms > self._config.ha_silence_ms:
                silence = f"silent for {self._config.ha_silence_ms} ms (haHousekeepingInterval)"
                raise ConnectionError(silence)
            received = self._log.received_offset(flush=self._flush and count > 0)
            if received > self._reported:
                self._report(connection, received)
            elif now_ms - self._reported_ms >= self._config.ha_heartbeat_ms:
                self._report(connection, self._reported)

    def _take_more(self, connection: socket.socket, view: memoryview, filled: int) -> int:
        """Take what has come meanwhile, so that one report is for all of it; return as `_take_frames`."""
        until = self._log.next_offset + UNREPORTED_BYTES_MAX
        while self._log.next_offset < until:
            count = _read(connection, view[filled:], socket.MSG_DONTWAIT)
            if count <= 0:  # that it is closed the next read tells too
                break
            self._rate.add(count)
            filled = self._take_frames(view, filled + count)
        return filled

    def _take_frames(self, view: memoryview, filled: int) -> int:
        """Write what whole frames hold, and move the rest to the front; return its length."""
        at = 0
        while filled - at >= HEADER.size:
            log_offset, size = HEADER.unpack_from(view, at)
            self._check(log_offset, size)
            if filled - at - HEADER.size < size:
                break
            at += HEADER.size
            if size:
                self._take(log_offset, view[at : at + size])
                at += size
        left = filled - at
        if at and left:
            view[:left] = view[at:filled]
        return left

    def _check(self, log_offset: int, size: int) -> None:
        if not 0 <= size <= BATCH_BYTES_MAX:
            what = (
                f"a frame of {size} bytes; at most {BATCH_BYTES_MAX} can be (haTransferBatchSize)"
            )
            raise RemoteProtocolError(what)
        expected = self._log.next_offset
        if log_offset != expected and not self._log.is_empty:
            what = f"it sent log offset {log_offset} where {expected} follows"
            raise RemoteProtocolError(what)

    def _take(self, log_offset: int, data: memoryview) -> None:
        self.primary_end = max(self.primary_end, log_offset + len(data))
        try:
            self._log.take(log_offset, data)
        except FormatError as error:
            raise RemoteProtocolError(f"its log cannot be taken over: {error}") from error


def _limit_times(connection: socket.socket) -> None:
    """Have the kernel end reads and writes in time: a timeout of Python's costs a call more for each."""
    connection.settimeout(None)
    for option, limit_ms in ((socket.SO_RCVTIMEO, READ_MS), (socket.SO_SNDTIMEO, CONNECT_MS)):
        seconds, rest_ms = divmod(limit_ms, SECOND_MS)
        connection.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", seconds, rest_ms * 1000))


def _read(connection: socket.socket, into: memoryview, flags: int = 0) -> int:
    """Return how many bytes came; 0: the connection is closed, -1: none came in time."""
    try:
        return connection.recv_into(into, flags=flags)
    except BlockingIOError:
        return -1
