"""The kernels of sends in plain Python: readable, ready at once, and what the compiled ones must equal."""

from orbitmq.wire.fast.plain.frames import find_sends
from orbitmq.wire.fast.plain.records import publish_records, write_answers, write_sends
from orbitmq.wire.fast.signature import SendKernels


class PlainSends:
    """The reference kernels."""

    name = "plain"

    find_sends = staticmethod(find_sends)
    write_sends = staticmethod(write_sends)
    publish_records = staticmethod(publish_records)
    write_answers = staticmethod(write_answers)


KERNELS: SendKernels = PlainSends()
