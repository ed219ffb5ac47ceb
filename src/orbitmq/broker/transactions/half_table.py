"""HalfTable: which half messages have ended, as far as anybody may still ask.

Half messages are known by their queue offset. Those before `checked` are done with: they have ended, were
given up, or live on as a copy at the end of the queue. A copy has the unique key of the first one: whoever
ends any of them ends all.

Op messages before `op_checked` only list half messages before `checked`. RocketMQ keeps both offsets for
the group CID_RMQ_SYS_TRANS in consumerOffset.json, and so do we.
"""

from collections import deque
from collections.abc import Iterable
from enum import Enum


class Verdict(Enum):
    """How a transaction ended."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    ENDED = "ended"  # an op message says so, and not how


class HalfTable:
    """The state of one broker's half messages. Belongs to the event loop's thread."""

    def __init__(self) -> None:
        self.checked = 0  # queue offset in the half topic
        self.op_checked = 0  # queue offset in the op topic
        self._ended: dict[int, Verdict] = {}
        self._newest: dict[str, int] = {}  # unique key -> the newest copy
        self._keys: dict[int, str] = {}  # the newest copy -> unique key
        self._ops: deque[tuple[int, int]] = (
            deque()
        )  # op message, the last half message that it lists

    # --- asking ---

    def is_ended(self, offset: int) -> bool:
        return offset in self._ended

    def newest(self, key: str, offset: int) -> int:
        """Return where a half message lives now: there, or at its newest copy."""
        newest = self._newest.get(key, offset)
        return newest if newest > offset else offset

    def verdict(self, key: str, offset: int) -> Verdict | None:
        """Return how the transaction of a half message ended; None: nobody knows of an end."""
        return self._ended.get(self.newest(key, offset)) or self._ended.get(offset)

    def is_past(self, key: str, offset: int) -> bool:
        """Tell whether a half message was done with, and has no copy that is not."""
        return self.newest(key, offset) < self.checked

    # --- changing ---

    def end(self, key: str, offset: int, verdict: Verdict) -> list[int]:
        """Note an end; return the half messages for which op messages have to say so."""
        if key not in self._newest and offset >= self.checked:  # most have no copy
            self._ended[offset] = verdict
            return [offset]
        offsets = sorted({offset, self.newest(key, offset)})
        ended = [one for one in offsets if one >= self.checked]
        self._ended.update(dict.fromkeys(ended, verdict))
        return ended

    def copy(self, key: str, offset: int) -> None:
        """Note the newest copy of a half message."""
        before = self._newest.get(key)
        if before is not None:
            self._keys.pop(before, None)
        self._newest[key], self._keys[offset] = offset, key

    def pass_over(self, offset: int) -> None:
        """Note that the half message at `checked` is done with."""
        self._ended.pop(offset, None)
        key = self._keys.pop(offset, None)
        if key is not None:
            self._newest.pop(key, None)
        self.move_to(offset + 1)

    def move_to(self, offset: int) -> None:
        """Go on from this queue offset of the half topic."""
        self.checked = offset
        ops = self._ops
        while ops and ops[0][1] < offset:
            self.op_checked = ops.popleft()[0] + 1

    def skip_to(self, offset: int) -> None:
        """Go on from a later queue offset: what lies before it is not in the log any more."""
        self._ended = {one: verdict for one, verdict in self._ended.items() if one >= offset}
        for gone in [one for one in self._keys if one < offset]:
            del self._newest[self._keys.pop(gone)]
        self.move_to(offset)

    def op_written(self, op_offset: int, offsets: Iterable[int]) -> None:
        """Note an op message and what it lists."""
        self._ops.append((op_offset, max(offsets, default=-1)))
        self.move_to(self.checked)

    def read_op(self, op_offset: int, offsets: Iterable[int]) -> None:
        """Take in an op message that lies in the log already."""
        listed = list(offsets)
        current = (offset for offset in listed if offset >= self.checked)
        self._ended.update(dict.fromkeys(current, Verdict.ENDED))
        self.op_written(op_offset, listed)
