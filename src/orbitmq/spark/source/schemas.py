"""The columns of every table that OrbitMQ shows to Spark: names and types, once.

Columns of a message table (`MESSAGE_COLUMNS`):

column          | Spark type         | RocketMQ                  | meaning
topic           | string             | topic                     |
queue_id        | int                | queueId                   |
queue_offset    | bigint             | queueOffset               | number of the message in its queue
log_offset      | bigint             | commitLogOffset           | where its record starts in the commit log
size            | int                | storeSize                 | bytes of the record
tags            | string             | TAGS                      | null without one
keys            | array<string>      | KEYS                      | its parts; empty without any
message_id      | string             | UNIQ_KEY, msgId           | the producer's id; null without one
offset_id       | string             | offsetMsgId               | the id that names host and log offset
born_time       | timestamp          | bornTimestamp             | the producer's clock
store_time      | timestamp          | storeTimestamp            | the store's clock
born_host       | string             | bornHost                  | address:port
store_host      | string             | storeHost                 | address:port
sys_flag        | int                | sysFlag                   | bits: compression, transaction, IPv6
flag            | int                | flag                      | the producer's, never looked at
reconsume_times | int                | reconsumeTimes            |
prepared_offset | bigint             | preparedTransactionOffset | of the half message, else 0
body_crc        | int                | bodyCRC                   |
body_length     | int                | bodyLength                | of the body as stored
properties      | map<string,string> | properties                | all of them, those above included
body            | binary             | body                      | null with includeBody=false; a string with
                |                    |                           | bodyAs=text and bodyAs=json, a variant
                |                    |                           | with bodyAs=variant
error           | string             |                           | null if good; with badRecords=keep
                |                    |                           | what is wrong with this place of the log,
                |                    |                           | with bodyAs why this body is null
key             | string             | one of KEYS               | only with rowPerKey=true, which gives a row
                |                    |                           | for each key; null without any

Every record of the log is a row, but for fillers, which stand where a damaged one was. Half messages and
rollbacks are rows too (bits 0x4 and 0xC of sys_flag, topic RMQ_SYS_TRANS_HALF_TOPIC); an inner batch is one
row, with the queue offset of its first message, its number in the property INNER_NUM and its body as the
producer packed it. A time outside of the years 1 to 9999 is null; bytes that are no UTF-8 are shown as
U+FFFD. A row of a bad place has `log_offset`, `size` and `error`, the rest is null.

A reader that is given a schema of its own (`.schema("topic string, tags string")`) makes these columns
only: Spark itself does not tell a Python source which columns a query needs.
"""

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

_TEXT, _INT, _LONG, _TIME = StringType(), IntegerType(), LongType(), TimestampType()

MESSAGE_COLUMNS: Final[dict[str, DataType]] = {
    "topic": _TEXT,
    "queue_id": _INT,
    "queue_offset": _LONG,
    "log_offset": _LONG,
    "size": _INT,
    "tags": _TEXT,
    "keys": ArrayType(_TEXT),
    "message_id": _TEXT,
    "offset_id": _TEXT,
    "born_time": _TIME,
    "store_time": _TIME,
    "born_host": _TEXT,
    "store_host": _TEXT,
    "sys_flag": _INT,
    "flag": _INT,
    "reconsume_times": _INT,
    "prepared_offset": _LONG,
    "body_crc": _INT,
    "body_length": _INT,
    "properties": MapType(_TEXT, _TEXT),
    "body": BinaryType(),
    "error": _TEXT,
}

BODY: Final = "body"
ERROR: Final = "error"
_BODY_TYPES: Final[dict[str, DataType]] = {
    "binary": BinaryType(),
    "text": _TEXT,
    "json": _TEXT,
    "variant": VariantType(),
}
KEY: Final = "key"
"""The column of a table with a row for each key (option rowPerKey)."""
ALL_COLUMNS: Final = {**MESSAGE_COLUMNS, KEY: _TEXT}

MESSAGE_SCHEMA: Final = StructType(
    [StructField(name, kind, nullable=True) for name, kind in MESSAGE_COLUMNS.items()]
)
KEY_SCHEMA: Final = StructType(
    [StructField(name, kind, nullable=True) for name, kind in ALL_COLUMNS.items()]
)


def table_columns(row_per_key: bool, body_as: str) -> dict[str, DataType]:
    """Return the columns of a table with their types; `body_as` is the option bodyAs."""
    columns = ALL_COLUMNS if row_per_key else MESSAGE_COLUMNS
    return {**columns, BODY: _BODY_TYPES[body_as]}


def table_schema(row_per_key: bool, body_as: str = "binary") -> StructType:
    """Return the columns of a table for which nobody gave a schema."""
    columns = table_columns(row_per_key, body_as)
    return StructType([StructField(name, kind, nullable=True) for name, kind in columns.items()])
