"""What a read of a queue found."""

from dataclasses import dataclass, field

from orbitmq.message import GetStatus


@dataclass(slots=True)
class GetResult:
    """What a read found. `next_offset` is where to go on, whatever the status."""

    status: GetStatus
    next_offset: int = 0
    min_offset: int = 0
    max_offset: int = 0
    records: list[memoryview] = field(default_factory=list)
    queue_offsets: list[int] = field(default_factory=list)  # of an inner batch: its first
    log_offsets: list[int] = field(default_factory=list)
    message_count: int = 0  # an inner batch counts as many as it holds
    total_bytes: int = 0
    suggest_replica: bool = False  # the reader is so far behind that a replica should serve it
    packed: bytes | None = (
        None  # all records, one after another, where somebody joined them already
    )
