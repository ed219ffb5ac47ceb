"""Periodic jobs."""

import asyncio
import logging

import pytest

from async_run import run_async, until
from orbitmq.net.tasks import PeriodicJobs


def test_jobs_run_again_and_again_until_they_are_stopped(caplog: pytest.LogCaptureFixture) -> None:
    runs = {"plain": 0, "async": 0, "broken": 0}

    def count() -> None:
        runs["plain"] += 1

    async def wait() -> None:
        runs["async"] += 1
        await asyncio.sleep(0)

    def fail() -> None:
        runs["broken"] += 1
        raise ValueError("once more")

    async def main() -> None:
        jobs = PeriodicJobs()
        jobs.add("plain", 1, count)
        jobs.add("async", lambda: 1, wait)
        jobs.add("broken", 1, fail)
        await until(lambda: min(runs.values()) >= 3)

        await jobs.stop()

        assert asyncio.all_tasks() == {asyncio.current_task()}

    with caplog.at_level(logging.ERROR):
        run_async(main)
    assert "job broken failed" in caplog.text


def test_a_job_that_takes_long_does_not_run_twice_at_once() -> None:
    active = 0
    seen: list[int] = []

    async def slow() -> None:
        nonlocal active
        active += 1
        await asyncio.sleep(0.01)  # sleep: ten times its period
        seen.append(active)
        active -= 1

    async def main() -> None:
        jobs = PeriodicJobs()
        jobs.add("slow", 1, slow)
        await until(lambda: len(seen) >= 3)
        await jobs.stop()

    run_async(main)
    assert set(seen) == {1}
