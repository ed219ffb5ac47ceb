"""Jobs that run again and again."""

import asyncio
import logging

from async_run import run_async
from orbitmq.client.periodic import PeriodicJob


def test_a_job_runs_again_and_again_until_it_is_stopped():
    async def main():
        runs: list[int] = []
        enough = asyncio.Event()

        async def work():
            runs.append(1)
            if len(runs) == 3:
                enough.set()

        job = PeriodicJob("work", work, period_ms=1).start()
        await enough.wait()
        await job.stop()
        count = len(runs)
        await asyncio.sleep(0.02)
        assert len(runs) == count

    run_async(main)


def test_a_woken_job_runs_at_once():
    async def main():
        ran = asyncio.Event()

        async def work():
            ran.set()

        job = PeriodicJob("work", work, period_ms=1e9, first_ms=1e9).start()
        await asyncio.sleep(0)
        job.wake()
        await asyncio.wait_for(ran.wait(), 5)
        await job.stop()

    run_async(main)


def test_an_error_is_logged_and_the_job_goes_on(caplog):
    async def main():
        runs: list[int] = []
        again = asyncio.Event()

        async def work():
            runs.append(1)
            if len(runs) == 1:
                raise ValueError("broken")
            again.set()

        job = PeriodicJob("work", work, period_ms=1).start()
        await again.wait()
        await job.stop()

    with caplog.at_level(logging.ERROR):
        run_async(main)
    assert "work failed" in caplog.text


def test_runs_do_not_overlap_and_a_wake_meanwhile_makes_one_more():
    async def main():
        running = 0
        runs = 0
        done = asyncio.Event()

        async def work():
            nonlocal running, runs
            running += 1
            assert running == 1
            await asyncio.sleep(0.01)
            running -= 1
            runs += 1
            if runs == 2:
                done.set()

        job = PeriodicJob("work", work, period_ms=1e9).start()
        await asyncio.sleep(0.005)
        job.wake()
        job.wake()
        await done.wait()
        await asyncio.sleep(0.03)
        assert runs == 2
        await job.stop()
        await job.stop()

    run_async(main)
