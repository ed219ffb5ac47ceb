"""How many inputs the tests draw: enough for each run, or all of them with ORBITMQ_FUZZ=whole.

Where seeds are fixed the fewer are the first of the many, so whatever they find is found again.
"""

import os
from typing import Final

SHARE: Final = 1 if os.environ.get("ORBITMQ_FUZZ") == "whole" else 4


def rounds(whole: int) -> int:
    """Return how many of so many are drawn in this run."""
    return whole // SHARE
