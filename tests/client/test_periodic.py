"""Jobs that run again and again."""

import asyncio
import logging

from async_run import run_async
from orbitmq.client.core.periodic import PeriodicJob


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

        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert len(runs) >= 3

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


def test_runs_do_not_overlap_and_wakes_meanwhile_make_one_more():
    async def main():
        started, may_end = asyncio.Queue(), asyncio.Semaphore(0)

        async def work():
            started.put_nowait("run")
            await may_end.acquire()

        async def turns():
            for _ in range(10):
                await asyncio.sleep(0)

        job = PeriodicJob("work", work, period_ms=1e9).start()
        await started.get()
        job.wake()
        job.wake()
        await turns()
        assert started.empty()  # the first one is not done

        may_end.release()
        await started.get()
        may_end.release()
        await turns()
        assert started.empty()  # two wakes, one more run
        await job.stop()
        await job.stop()

    run_async(main)
