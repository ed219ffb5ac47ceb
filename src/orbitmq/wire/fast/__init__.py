"""Ordinary sends from their frames to records and answers, without an object for each.

`SendRun` holds the sends of one read; its kernels exist twice (`kernels.plain()`, `kernels.compiled()`).
What is ordinary: see `plain/frames.py`. Everything else is for `wire` and the broker's rules.
"""

from orbitmq.wire.fast.layout import SendKernels
from orbitmq.wire.fast.run import SendRun, SentTo

__all__ = ["SendKernels", "SendRun", "SentTo"]
