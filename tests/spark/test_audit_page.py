"""A report as a page: everything in one file, nothing that runs, whatever names peers have chosen."""

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from orbitmq.spark.jobs.audit.copies import Offender, Place
from orbitmq.spark.jobs.audit.histogram import Bar, Histogram
from orbitmq.spark.jobs.audit.keyed import np
from orbitmq.spark.jobs.audit.page.charts import BARS_MAX, Series, short_number, time_chart
from orbitmq.spark.jobs.audit.page.parts import age, table
from orbitmq.spark.jobs.audit.report import (
    Asked,
    AuditReport,
    DuplicateRow,
    GroupRow,
    HourRow,
    LagRow,
    Read,
    ReturnedRow,
    TagRow,
    TopicRow,
    TraceGroupRow,
    TraceTopicRow,
    UnconsumedRow,
)
from orbitmq.units import HOUR_MS

START_MS = 495_000 * HOUR_MS
EVIL = "<script>document.title='x'</script>\"'><img src=x onerror=alert(1)>\x00\u202e"
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)
VOID = {"meta", "line", "rect"}


def report_of(name: str = "Orders", hours: int = 60) -> AuditReport:
    """Return a report with a row in each table."""
    numbers = Histogram()
    numbers.add(np.array([1, 3, 3, 90, 4000]))
    spread, place = numbers.spread(), Place("broker-a", 1, 7, 4096, START_MS)
    return AuditReport(
        Asked(f"/store/{name}", START_MS + 70 * HOUR_MS, START_MS, None, [name], [name]),
        Read(1234, 1234, 567_890, 2, 10, 1),
        topics=[
            TopicRow(one, 700, 700, 400_000, spread, spread, 3, 0) for one in (name, *"abcdefghi")
        ],
        tags=[TagRow(name, name, 600, 300_000), TagRow(name, None, 100, 100_000)],
        hours=[
            HourRow(one, START_MS + number * HOUR_MS, 10 + number, 1000)
            for one in (name, *"abcdefghi")
            for number in range(hours)
        ],
        sizes=[Bar(256, 512, 40), Bar(512, 1024, 0), Bar(1024, 2048, 7)],
        latencies=numbers.bars(),
        duplicates=[DuplicateRow(name, "id", 500, 7, 9, 31)],
        offenders=[Offender(name, "key", name, 4, (place, place))],
        lag=[
            LagRow(name, name, name, 0, 5, 90, 85, 17, "at most", START_MS, name, "given"),
        ],
        groups=[GroupRow(name, 4711, "at most", 9999, START_MS, 5, 6, START_MS)],
        returned=[ReturnedRow(name, "retry", name, 3, 12, 3456, START_MS, START_MS)],
        trace_topics=[TraceTopicRow(name, 700, 600, 590, 1, 500, 20, 80, spread)],
        trace_groups=[TraceGroupRow(name, name, 520, 500, 530, 30, 1, spread, spread)],
        unconsumed=[UnconsumedRow(name, name, place)],
    )


class Reader(HTMLParser):
    """Reads a page as a browser would: its elements, their attributes, its text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text.append(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []  # every element has its end
    return reader


@pytest.mark.feature("P12")
def test_a_page_loads_and_runs_nothing() -> None:
    page = report_of().html()
    reader = read(page)

    assert {"script", "link", "img", "iframe", "object", "base"}.isdisjoint(reader.tags)
    names = {name for name, _ in reader.attributes}
    assert {"src", "href", "srcset", "data", "action", "style"}.isdisjoint(names)
    assert not any(name.startswith("on") for name in names)
    assert "url(" not in page
    assert "@import" not in page
    assert not re.search(r"https?://", page)
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in reader.attributes


@pytest.mark.feature("P12")
def test_names_of_peers_are_text_wherever_they_stand() -> None:
    plain, evil = read(report_of("Orders").html()), read(report_of(EVIL).html())

    assert evil.tags == plain.tags
    assert [name for name, _ in evil.attributes] == [name for name, _ in plain.attributes]
    shown = EVIL.replace("\x00", "\ufffd").replace("\u202e", "\ufffd")
    assert "".join(evil.text).count(shown) >= 15
    assert "\x00" not in "".join(evil.text)


@pytest.mark.feature("P12")
def test_a_page_says_of_what_it_is_and_has_the_numbers_beside_the_charts() -> None:
    text = "|".join(read(report_of().html()).text)

    assert "Audit of /store/Orders" in text
    assert "since 2026-06-21 00:00:00" in text
    assert "made 2026-06-23 22:00:00" in text
    for number in ("7,000", "≤ 4,711", "at most", "390.6 KiB", "2.9 d", "broker-a 1:7"):
        assert number in text
    assert "2 places of the log hold no record" in text
    assert "other topics" in text  # more topics than colours


def test_a_notebook_shows_the_page_in_a_frame_of_its_own() -> None:
    reader = read(report_of(EVIL)._repr_html_())

    assert (reader.tags, reader.open) == (["iframe"], [])
    attributes = dict(reader.attributes)
    assert attributes["srcdoc"] == report_of(EVIL).html()
    assert "sandbox" in attributes


def test_long_times_are_drawn_by_longer_units_and_what_is_left_out_is_told() -> None:
    def chart(hours: list[int]) -> tuple[str, int, int]:
        counts = {hour * HOUR_MS: 2 for hour in hours}
        found = time_chart([Series("a", 0, counts)], "label")
        return found.unit, found.svg.count("<rect"), found.left_out

    assert chart([495_000]) == ("hour", 1, 0)
    assert chart(list(range(495_000, 495_000 + BARS_MAX))) == ("hour", BARS_MAX, 0)
    assert chart(list(range(495_000, 495_000 + BARS_MAX + 1))) == ("6 hours", 67, 0)
    assert chart([495_000, 495_000 + 24 * BARS_MAX - 24]) == ("day", 2, 0)
    assert chart([0, 495_000]) == ("4 weeks", 1, 2)
    assert time_chart([Series("a", 0, {})], "label").svg == ""


def test_a_long_table_says_how_much_is_left_out() -> None:
    text = "".join(read(table(["a"], [[number] for number in range(130)])).text)

    assert "30 more rows are in the JSON" in text
    assert "99" in text
    assert table(["a"], []) == ""


def test_numbers_are_short_on_an_axis_and_ages_are_for_people() -> None:
    shown = [short_number(number) for number in (0, 5, 999, 1500, 2_000_000, 3e9)]
    assert shown == ["0", "5", "999", "1.5k", "2M", "3G"]
    ages = [age(10**12 - ms, 10**12) for ms in (-5, 59_000, 90_000, 5_400_000, 2 * 86_400_000)]
    assert ages == ["0 s", "59 s", "1.5 min", "1.5 h", "2.0 d"]


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
def test_a_browser_shows_the_charts_and_runs_no_name(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(report_of(EVIL).html(), encoding="utf-8")
    quiet = ("--disable-background-networking", "--disable-component-update", "--disable-sync")
    found = subprocess.run(
        [
            *(CHROMIUM or "", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"),
            *("--no-first-run", *quiet, f"--user-data-dir={tmp_path / 'profile'}"),
            *(f"--screenshot={tmp_path / 'page.png'}", "--dump-dom", page.as_uri()),
        ],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=True,
    )

    seen = read(found.stdout)  # as the browser understood it
    assert seen.tags.count("svg") == 4
    assert seen.tags.count("rect") > 400
    assert {"script", "img"}.isdisjoint(seen.tags)
    assert "<title>x</title>" not in found.stdout
    assert "Audit of" in "".join(seen.text)
