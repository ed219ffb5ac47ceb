"""The kernels of sends in plain Python: readable, ready at once, and what the compiled ones must equal."""

from orbitmq.wire.fast.layout import SendKernels
from orbitmq.wire.fast.plain.frames import find_sends
from orbitmq.wire.fast.plain.records import publish_records, write_answers, write_sends

KERNELS = SendKernels("plain", find_sends, write_sends, publish_records, write_answers)
