"""Bits of a pull request's sysFlag."""

from enum import IntFlag


class PullFlag(IntFlag):
    """What a pull request carries and allows (RocketMQ: PullSysFlag)."""

    COMMIT = 0x1  # commitOffset is the group's new consumer offset
    SUSPEND = 0x2  # with nothing new, the answer may wait
    SUBSCRIPTION = 0x4  # the subscription stands in the request, not in the heartbeat
    CLASS_FILTER = 0x8  # obsolete
    LITE = 0x10  # comes with request code LITE_PULL_MESSAGE
