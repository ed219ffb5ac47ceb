"""For tests: a broker that starts in one, a clock that a test owns, disks that fail or lose power.

from orbitmq.testing import Broker
"""

from typing import TYPE_CHECKING

from orbitmq.lazy import lazy_exports

if TYPE_CHECKING:
    from orbitmq.testing.broker import Broker
    from orbitmq.testing.fake_clock import FakeClock
    from orbitmq.testing.fake_disk import FaultyDisk
    from orbitmq.testing.power_cut import PowerCutDisk

__all__ = ["Broker", "FakeClock", "FaultyDisk", "PowerCutDisk"]

# A test that only wants the fake clock should not import the broker.
__getattr__ = lazy_exports(
    __name__,
    {
        "Broker": "orbitmq.testing.broker",
        "FakeClock": "orbitmq.testing.fake_clock",
        "FaultyDisk": "orbitmq.testing.fake_disk",
        "PowerCutDisk": "orbitmq.testing.power_cut",
    },
)
