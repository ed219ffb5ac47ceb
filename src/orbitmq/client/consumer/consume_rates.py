"""ConsumeRates: how fast a consumer is with each topic, for the tools that ask."""

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Final

from orbitmq.wire.bodies.running_info import ConsumeStatus

_WINDOW_SAMPLES: Final = 6


@dataclass(slots=True)
class _Totals:
    """Counts since the start; times in milliseconds."""

    pulled: int = 0
    pulls: int = 0
    pull_ms: float = 0.0
    handled: int = 0
    failed: int = 0
    handle_ms: float = 0.0


@dataclass(slots=True)
class ConsumeRates:
    """Totals by topic, and samples of them from which rates are made. Belongs to its loop's thread."""

    _totals: defaultdict[str, _Totals] = field(default_factory=lambda: defaultdict(_Totals))
    _samples: list[tuple[float, dict[str, _Totals]]] = field(default_factory=list)

    def pulled(self, topic: str, count: int, milliseconds: float) -> None:
        totals = self._totals[topic]
        totals.pulled += count
        totals.pulls += 1
        totals.pull_ms += milliseconds

    def handled(self, topic: str, count: int, failed: int, milliseconds: float) -> None:
        totals = self._totals[topic]
        totals.handled += count - failed
        totals.failed += failed
        totals.handle_ms += milliseconds

    def sample(self, monotonic_ms: float) -> None:
        """Remember the totals; called every few seconds, the last samples are kept."""
        copies = {topic: replace(totals) for topic, totals in self._totals.items()}
        self._samples.append((monotonic_ms, copies))
        del self._samples[:-_WINDOW_SAMPLES]

    def status(self, monotonic_ms: float) -> dict[str, ConsumeStatus]:
        """Return the rates by topic over the time of the samples."""
        since_ms, before = self._samples[0] if self._samples else (monotonic_ms, {})
        seconds = max((monotonic_ms - since_ms) / 1000, 1.0)
        return {
            topic: _status(totals, before.get(topic, _Totals()), seconds)
            for topic, totals in self._totals.items()
        }


def _status(now: _Totals, before: _Totals, seconds: float) -> ConsumeStatus:
    handled = now.handled - before.handled
    failed = now.failed - before.failed
    return ConsumeStatus(
        pull_rt=(now.pull_ms - before.pull_ms) / max(now.pulls - before.pulls, 1),
        pull_tps=(now.pulled - before.pulled) / seconds,
        consume_rt=(now.handle_ms - before.handle_ms) / max(handled + failed, 1),
        consume_ok_tps=handled / seconds,
        consume_failed_tps=failed / seconds,
        consume_failed_messages=now.failed,
    )
