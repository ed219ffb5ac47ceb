"""Sizes in bytes and times in milliseconds, so that defaults can be read aloud; sizes as people read them."""

from typing import Final

KiB: Final = 1024
MiB: Final = 1024 * KiB
GiB: Final = 1024 * MiB

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS

PAGE_BYTES: Final = 4096
"""RocketMQ counts dirty pages in units of 4096 bytes, whatever the machine's page size is."""


def bytes_text(count: int) -> str:
    """Return a size for people: 1.3 GiB."""
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
