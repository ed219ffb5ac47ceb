"""What the demo prints: one line per step with its figures, and whether they are ok."""

import time
from collections.abc import Callable, Sequence

from rich.console import Console


class Report:
    """Prints steps and remembers whether all of them were ok."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        self.all_ok = True
        self._start = time.perf_counter()

    def heading(self, text: str) -> None:
        self.console.print(f"{text}\n")

    def line(
        self, step: str, text: str, timer: "Timer | None" = None, count: int = 0, *, ok: bool
    ) -> None:
        """Print a step: what was done, how long it took, how many per second, ok or not."""
        self.all_ok &= ok
        took = f"{timer.seconds:.2f} s" if timer else ""
        rate = f"{count / timer.seconds:,.0f}/s" if timer and count else ""
        mark = "[green]ok[/]" if ok else "[red]WRONG[/]"
        self.console.print(f"{step:8}{text:43}{took:>9}{rate:>13}  {mark}")

    def findings(self, step: str, check: Callable[[], Sequence[object]]) -> None:
        """Print the step of a check of the store, and the first things that it found wrong."""
        with Timer() as timer:
            found = check()
        for finding in found[:5]:
            self.remark(str(finding))
        self.line(step, f"{len(found)} findings", timer, ok=not found)

    def doctor(self, step: str, target: str) -> None:
        """Print the step of a look by `orbitmq doctor`. How full this machine's disk is decides nothing."""
        from orbitmq.cli.doctor import examined
        from orbitmq.doctor.asked import Asked

        with Timer() as timer:
            report = examined(Asked(target=target))
        for finding in report.findings:
            self.remark(f"{finding.what}: {finding.where}. {finding.command}")
        found = [finding for finding in report.findings if finding.subject != "disk"]
        kind = "directory" if "/" in target else "cluster"
        self.line(step, f"{len(found)} findings in the {kind}", timer, ok=not found)

    def remark(self, text: str) -> None:
        self.console.print(f"{'':8}{text}", style="dim", soft_wrap=True)

    def verdict(self) -> None:
        took = time.perf_counter() - self._start
        verdict = "[green]every figure is ok[/]" if self.all_ok else "[red]figures are wrong[/]"
        self.console.print(f"\n{took:.1f} s in all; {verdict}")


class Timer:
    """Measures a block, or the part of it before `stop`."""

    def __enter__(self) -> "Timer":
        self._start = time.perf_counter()
        self.seconds = 0.0
        return self

    def stop(self) -> None:
        self.seconds = time.perf_counter() - self._start

    def __exit__(self, *exc: object) -> None:
        self.seconds = self.seconds or time.perf_counter() - self._start
