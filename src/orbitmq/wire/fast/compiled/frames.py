"""Find the ordinary sends at the beginning of what came from a producer, compiled. See `plain.frames`."""

from typing import Final

import numpy as np

from orbitmq.format.client_batch import HEAD_BYTES
from orbitmq.format.compiled.jit import helper, kernel
from orbitmq.format.compiled.memory import load_i16, load_i32
from orbitmq.format.compiled.numbers import digits
from orbitmq.format.compiled.text import find_byte, same_bytes
from orbitmq.format.ordinary import SPECIAL_FLAGS, SPECIAL_NAME, SPECIAL_PREFIXES
from orbitmq.format.record import OVERHEAD_BYTES
from orbitmq.format.waiting import TIMED
from orbitmq.message import PROPERTIES_BYTES_MAX, TIMER_TOPIC, TOPIC_BYTES_MAX, Property
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import INT_MAX, ONEWAY_FLAG
from orbitmq.wire.fast.layout import MOVED, MOVED_BYTES, NAMES_MAX, TIME_DIGITS_MAX
from orbitmq.wire.frame import HEADER_BYTES_MAX
from orbitmq.wire.header_json import MEMBERS
from orbitmq.wire.headers.send import BROKER_PROPERTIES, LETTERS

_NONE: Final = np.int64(-1)
_SEND_V1: Final = RequestCode.SEND_MESSAGE.value
_SEND_V2: Final = RequestCode.SEND_MESSAGE_V2.value
_SEND_BATCH: Final = RequestCode.SEND_BATCH_MESSAGE.value


def _word(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), dtype=np.uint8)


def _words(*texts: str) -> tuple[np.ndarray, np.ndarray]:
    """Return texts as one array, and where each of them ends; the first number is 0."""
    return _word("".join(texts)), np.cumsum([0, *map(len, texts)])


_LETTERS: Final = _word("".join(LETTERS.values()))
_NAMES, _NAME_ENDS = _words(*LETTERS)
_TOPIC: Final = ord(LETTERS["topic"])
_COUNT: Final = ord(LETTERS["defaultTopicQueueNums"])
_QUEUE_ID: Final = ord(LETTERS["queueId"])
_SYS_FLAG: Final = ord(LETTERS["sysFlag"])
_BORN: Final = ord(LETTERS["bornTimestamp"])
_OWN_FLAG: Final = ord(LETTERS["flag"])
_PROPERTIES: Final = ord(LETTERS["properties"])
_TIMES: Final = ord(LETTERS["reconsumeTimes"])
_TIMES_MAX: Final = ord(LETTERS["maxReconsumeTimes"])
_BATCH: Final = ord(LETTERS["batch"])
_CODE, _FIELDS, _FLAG, _LANGUAGE, _OPAQUE, _REMARK, _ENCODING, _VERSION = map(_word, MEMBERS)
_TRUE: Final = _word("true")
_FALSE: Final = _word("false")
_CONTROL: Final = _word("u000")
_UNIQUE: Final = _word(Property.UNIQ_KEY)
_WAIT: Final = _word(Property.WAIT)
_TIMER_TOPIC_BYTES: Final = len(TIMER_TOPIC)
_TIMED, _TIMED_ENDS = _words(*TIMED)
_MOVED, _MOVED_ENDS = _words(*MOVED)
_ACTED_ON, _ACTED_ON_ENDS = _words(SPECIAL_NAME, *sorted(BROKER_PROPERTIES))
_PREFIXES, _PREFIX_ENDS = _words(*SPECIAL_PREFIXES)


@helper
def _starts(buffer, at, end, word):
    """Tell whether these bytes stand at this place."""
    return at + len(word) <= end and same_bytes(buffer, at, word, 0, len(word))


@helper
def _is(buffer, at, length, word):
    return length == len(word) and same_bytes(buffer, at, word, 0, length)


@helper
def _text_end(data, at, end):
    """Return where the text that begins at `at` ends, at its quote; -1 if it is no plain ASCII."""
    stop = find_byte(data, at, end, 0x22)
    if stop >= end:
        return _NONE
    for index in range(at, stop):
        byte = data[index]
        if byte < 0x20 or byte >= 0x80 or byte == 0x5C:
            return _NONE
    return stop


@helper
def _number(data, at, end):
    """Return (value, end) of the digits here; -1 if there are none, or too many."""
    value = np.int64(0)
    start = at
    while at < end and 0x30 <= data[at] <= 0x39:
        value = value * 10 + (data[at] - 0x30)
        at += 1
        if at - start > 18:
            return _NONE, at
    if at == start or (data[start] == 0x30 and at - start > 1):
        return _NONE, at
    return value, at


@helper
def _field_number(data, at, end):
    """Return the number that a text holds, -1 if it is none."""
    value, stop = _number(data, at, end)
    return value if stop == end else _NONE


@helper
def _unescape(data, at, end, text, used):
    """Copy properties to the text; return (end in the text, end in the data), -1 if they are not plain."""
    while at < end:
        byte = data[at]
        if byte == 0x22:
            return used, at
        if byte < 0x20 or byte >= 0x80 or used >= len(text):
            return _NONE, at
        if byte == 0x5C:
            if not _starts(data, at + 1, end, _CONTROL) or at + 6 > end:
                return _NONE, at
            byte = data[at + 5] - 0x30
            if byte != 1 and byte != 2:  # noqa: PLR1714
                return _NONE, at
            at += 5
        text[used] = byte
        used += 1
        at += 1
    return _NONE, at


@helper
def _which(text, at, length, words, ends):
    """Return which of these words stands here, counted from 1; 0: none."""
    for number in range(len(ends) - 1):
        start = ends[number]
        size = ends[number + 1] - start
        if length == size and same_bytes(text, at, words, start, size):
            return number + 1
    return 0


@helper
def _read_time(text, at, end, row):
    """Note what a property of TIMED says; False: it is no time."""
    if end - at > TIME_DIGITS_MAX:
        return False
    value = np.int64(0)
    for index in range(at, end):
        digit = np.int64(text[index]) - 0x30
        if digit < 0 or digit > 9:
            return False
        value = value * 10 + digit
    row.time = value
    return True


@helper
def _is_acted_on(text, at, length):
    """Tell whether a property is one that store or broker act on, or set themselves."""
    if _which(text, at, length, _ACTED_ON, _ACTED_ON_ENDS) > 0:
        return True
    for number in range(len(_PREFIX_ENDS) - 1):
        start = _PREFIX_ENDS[number]
        size = _PREFIX_ENDS[number + 1] - start
        if length >= size and same_bytes(text, at, _PREFIXES, start, size):
            return True
    return False


@helper
def _is_known(text, at, length, names, count):
    """Tell whether a property of this name came before."""
    for index in range(count):
        if names[index, 1] == length and same_bytes(text, names[index, 0], text, at, length):
            return True
    return False


@helper
def _look_at_properties(text, start, end, names, row):
    """Return (fine, start, end) of properties and their unique key, (0, 0) if there is none.

    RocketMQ reads them into a map and writes that. They are fine if it would write them as they are: each
    has a name of its own and a value.
    """
    nothing = np.int64(0)
    if end == start or text[end - 1] != 2:
        return False, nothing, nothing
    key_at = key_end = nothing
    at, count = start, 0
    is_moved = False
    row.timed, row.time, row.slot_ms = 0, 0, 0
    while at < end:
        piece_end = find_byte(text, at, end, 2)
        name_end = find_byte(text, at, piece_end, 1)
        length = name_end - at
        if length == 0 or name_end + 1 >= piece_end or count == len(names):
            return False, nothing, nothing
        value_at = name_end + 1
        timed = _which(text, at, length, _TIMED, _TIMED_ENDS)
        if timed > 0:
            if row.timed > 0 or not _read_time(text, value_at, piece_end, row):
                return False, nothing, nothing
            row.timed = timed
        elif _is_acted_on(text, at, length) or _is_known(text, at, length, names, count):
            return False, nothing, nothing
        is_moved |= _which(text, at, length, _MOVED, _MOVED_ENDS) > 0
        if _is(text, at, length, _UNIQUE):
            key_at, key_end = value_at, piece_end
            if not _is_plain_key(text, key_at, key_end):
                return False, nothing, nothing
        elif _is(text, at, length, _WAIT) and not _is(text, value_at, piece_end - value_at, _TRUE):
            return False, nothing, nothing
        names[count, 0], names[count, 1] = at, length
        count += 1
        at = piece_end + 1
    if row.timed > 0 and (is_moved or row.batch == 1):
        return False, nothing, nothing
    return True, key_at, key_end


@helper
def _is_plain_key(text, at, end):
    for index in range(at, end):
        byte = text[index] | 0x20
        if not (0x61 <= byte <= 0x7A or 0x30 <= text[index] <= 0x39):
            return False
    return end > at


@helper
def _letter(data, at, length):
    """Return the letter that stands for a field's name in the later form of a send, 0 if it has none."""
    if length == 1:
        return data[at]
    for number in range(len(_LETTERS)):
        start = _NAME_ENDS[number]
        size = _NAME_ENDS[number + 1] - start
        if length == size and same_bytes(data, at, _NAMES, start, size):
            return _LETTERS[number]
    return np.uint8(0)


@helper
def _read_fields(data, at, end, row, text, used, named):
    """Read the fields of a send, from behind their brace on; return (end, end in the text), -1 if odd.

    `named`: they have whole names, not letters.
    """
    seen = 0
    row.reconsume_times = 0
    row.batch = 0
    while True:
        if at >= end or data[at] != 0x22:
            return _NONE, used
        name_end = _text_end(data, at + 1, end)
        if name_end < 0 or name_end + 3 > end or data[name_end + 1] != 0x3A:
            return _NONE, used
        length = name_end - at - 1
        letter = _letter(data, at + 1, length) if (length == 1) != named else np.uint8(0)
        if data[name_end + 2] != 0x22:
            return _NONE, used
        at = name_end + 3
        if letter == _PROPERTIES:
            row.properties_at = used
            used, stop = _unescape(data, at, end, text, used)
            if used < 0:
                return _NONE, used
            row.properties_length = used - row.properties_at
            seen |= 1
        else:
            stop = _text_end(data, at, end)
            if stop < 0:
                return _NONE, used
        if letter == _TOPIC:
            row.topic_at, row.topic_length = at, stop - at
            seen |= 2
        elif letter == _QUEUE_ID:
            row.queue_id = _field_number(data, at, stop)
            seen |= 4
        elif letter == _SYS_FLAG:
            row.sys_flag = _field_number(data, at, stop)
            seen |= 8
        elif letter == _BORN:
            row.born_ms = _field_number(data, at, stop)
            seen |= 16
        elif letter == _OWN_FLAG:
            row.flag = _field_number(data, at, stop)
            seen |= 32
        elif letter == _TIMES:
            row.reconsume_times = _field_number(data, at, stop)
        elif letter == _COUNT or letter == _TIMES_MAX:  # noqa: PLR1714, SIM109
            if _field_number(data, at, stop) < 0:
                return _NONE, used
        elif letter == _BATCH:
            row.batch = 1 if _is(data, at, stop - at, _TRUE) else 0
            if row.batch == 0 and not _is(data, at, stop - at, _FALSE):
                return _NONE, used
        at = stop + 1
        if at < end and data[at] == 0x2C:
            at += 1
        elif at < end and data[at] == 0x7D:
            return (at + 1 if seen == 63 else _NONE), used
        else:
            return _NONE, used


@helper
def _read_header(data, at, end, row, text, used):
    """Read a header; return the end in the text, -1 if it is no ordinary send."""
    if at >= end or data[at] != 0x7B:
        return _NONE
    at += 1
    code = flag = np.int64(-1)
    has_fields = named = False
    row.opaque, row.version, row.language_at, row.language_length = 0, 0, 0, 0
    while True:
        if at >= end or data[at] != 0x22:
            return _NONE
        name_at = at + 1
        name_end = _text_end(data, name_at, end)
        if name_end < 0 or name_end + 2 >= end or data[name_end + 1] != 0x3A:
            return _NONE
        length = name_end - name_at
        at = name_end + 2
        if _is(data, name_at, length, _FIELDS):
            if data[at] != 0x7B or has_fields:
                return _NONE
            named = code == _SEND_V1  # if it comes first, as it does: the last line looks
            at, used = _read_fields(data, at + 1, end, row, text, used, named)
            if at < 0:
                return _NONE
            has_fields = True
        elif (
            _is(data, name_at, length, _LANGUAGE)
            or _is(data, name_at, length, _ENCODING)
            or _is(data, name_at, length, _REMARK)
        ):
            stop = _text_end(data, at + 1, end) if data[at] == 0x22 else _NONE
            if stop < 0:
                return _NONE
            if length == len(_LANGUAGE):
                row.language_at, row.language_length = at + 1, stop - at - 1
            at = stop + 1
        else:
            value, at = _number(data, at, end)
            if value < 0 or value > INT_MAX:
                return _NONE
            if _is(data, name_at, length, _CODE):
                code = value
            elif _is(data, name_at, length, _FLAG):
                flag = value
            elif _is(data, name_at, length, _OPAQUE):
                row.opaque = value
            elif _is(data, name_at, length, _VERSION):
                row.version = value
            else:
                return _NONE
        if at < end and data[at] == 0x2C:
            at += 1
        elif at == end - 1 and data[at] == 0x7D:
            break
        else:
            return _NONE
    if not has_fields or named != (code == _SEND_V1):
        return _NONE
    if code != _SEND_V1 and code != _SEND_V2 and code != _SEND_BATCH:  # noqa: PLR1714
        return _NONE
    if flag != 0 and flag != ONEWAY_FLAG:  # noqa: PLR1714
        return _NONE
    row.oneway = 1 if flag == ONEWAY_FLAG else 0
    return used


@helper
def _fits(row, body_max):
    """Tell whether the numbers of a send are those of an ordinary message."""
    return (
        0 <= row.queue_id <= INT_MAX
        and 0 <= row.flag <= INT_MAX
        and 0 <= row.reconsume_times <= INT_MAX
        and 0 <= row.sys_flag <= INT_MAX
        and row.sys_flag & SPECIAL_FLAGS == 0
        and row.born_ms >= 0
        and 0 < row.topic_length <= TOPIC_BYTES_MAX
        and 0 < row.body_length <= body_max
    )


@helper
def _measure_batch(data, row, extra_length):
    """Count the messages of a client batch and the bytes of their records; False: it is not plain."""
    at, end = row.body_at, row.body_at + row.body_length
    messages = total = np.int64(0)
    while at < end:
        if end - at < HEAD_BYTES + 2:
            return False
        body_length = load_i32(data, at + 16)
        length_at = at + HEAD_BYTES + body_length
        if body_length < 0 or length_at + 2 > end:
            return False
        own = load_i16(data, length_at)
        at = length_at + 2 + own
        if own < 0 or at > end:
            return False
        if find_byte(data, length_at + 2, at, 0) != at:
            return False
        properties = own + extra_length
        if own > 0 and data[at - 1] != 2:
            properties += 1
        if properties > PROPERTIES_BYTES_MAX:
            return False
        messages += 1
        total += OVERHEAD_BYTES + body_length + row.topic_length + properties
    row.messages, row.bytes = messages, total
    return True


@helper
def _measure(data, row, suffix_length):
    extra_length = row.properties_length + suffix_length
    if row.batch == 1:
        return _measure_batch(data, row, extra_length)
    row.messages = 1
    topic_length = row.topic_length
    if row.timed > 0:
        topic_length = np.int64(_TIMER_TOPIC_BYTES)
        extra_length += MOVED_BYTES + row.topic_length + digits(row.queue_id)
    row.bytes = OVERHEAD_BYTES + row.body_length + topic_length + extra_length
    return extra_length <= PROPERTIES_BYTES_MAX and row.key_length > 0


@helper
def _queue_of(data, row, queues, queue_count):
    """Return the number of a send's queue among those of the run; `queue_count` if it is a new one."""
    for number in range(queue_count):
        other = queues[number]
        if (
            other.queue_id == row.queue_id
            and other.topic_length == row.topic_length
            and same_bytes(data, other.topic_at, data, row.topic_at, row.topic_length)
        ):
            return number
    return queue_count


@kernel
def find_sends(data, start, frame_max, body_max, suffix_length, rows, queues, text):
    count = queue_count = 0
    at, used = start, np.int64(0)
    key_bytes = messages = np.int64(0)
    names = np.empty((NAMES_MAX, 2), dtype=np.int64)
    while count < len(rows) and len(data) - at >= 8:
        length, header_length = load_i32(data, at), load_i32(data, at + 4)
        if length > frame_max - 4 or not 0 <= header_length <= min(length - 4, HEADER_BYTES_MAX):
            break
        frame_end = at + 4 + length
        if frame_end > len(data):
            break
        row = rows[count]
        row.body_at = at + 8 + header_length
        row.body_length = frame_end - row.body_at
        text_end = _read_header(data, at + 8, row.body_at, row, text, used)
        if text_end < 0 or not _fits(row, body_max):
            break
        fine, key_at, key_end = _look_at_properties(text, row.properties_at, text_end, names, row)
        if not fine:
            break
        row.key_at, row.key_length = key_at, key_end - key_at
        if not _measure(data, row, suffix_length):
            break
        row.queue = _queue_of(data, row, queues, queue_count)
        if row.queue == len(queues):
            break
        queue = queues[row.queue]
        if row.queue == queue_count:
            queue.topic_at, queue.topic_length = row.topic_at, row.topic_length
            queue.queue_id = row.queue_id
            queue.messages = queue.bytes = queue.waiting = queue.next_offset = 0
            queue_count += 1
        queue.messages += row.messages
        queue.bytes += row.bytes
        queue.waiting += 1 if row.timed > 0 else 0
        messages += row.messages
        key_bytes += row.key_length
        used = text_end
        at = frame_end
        count += 1
    last = rows[max(count - 1, 0)]
    sender = last.language_at, last.language_length, last.version
    return count, queue_count, at, key_bytes, messages, sender[0], sender[1], sender[2]
