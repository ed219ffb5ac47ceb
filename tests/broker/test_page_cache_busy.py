"""A writer that holds the append lock for too long: what other producers hear, on both ways of a send."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from async_run import until
from live_broker import LOOPBACK, LiveClient, run_live
from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.testing.builders import make_request
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.fast import kernels as send_kernels

SECONDS_MAX = 5
CONF = f"""brokerIP1={LOOPBACK}
bindAddress={LOOPBACK}
listenPort=0
mappedFileSizeCommitLog=262144
maxHashSlotNum=64
maxIndexNum=256
flushDiskType=SYNC_FLUSH
"""  # with sync flush records are written by the descriptor, which a test can hold up

pytestmark = pytest.mark.feature("F119")


class StuckWriter:
    """A thread in the middle of an append: the disk takes its time, and it has the append lock."""

    def __init__(self, broker: Broker) -> None:
        self._store, self._open = broker.context.store, threading.Event()
        self._disk = self._store._deps.disk
        self._thread = threading.Thread(target=self._append)

    def _append(self) -> None:
        self._store.append(make_request(1))

    def __enter__(self) -> "StuckWriter":
        writing, write_at = threading.Event(), self._disk.write_at

        def stuck(*given: Any) -> None:
            if threading.current_thread() is self._thread:
                writing.set()
                self._open.wait(SECONDS_MAX)
            write_at(*given)

        self._disk.write_at = stuck  # type: ignore[method-assign]
        self._thread.start()
        assert writing.wait(SECONDS_MAX)
        return self

    def held_ms(self) -> int:
        return self._store.statistics().append_lock_ms

    def __exit__(self, *_: object) -> None:
        self._open.set()
        self._thread.join(SECONDS_MAX)
        del self._disk.write_at  # type: ignore[method-assign]


def broker_of(folder: Path, *lines: str) -> Broker:
    file = folder / "broker.conf"
    file.write_text(CONF + "".join(f"{line}\n" for line in lines))
    return Broker(BrokerConfig.load(file, {"storePathRootDir": folder / "store"}))


async def figures(client: LiveClient) -> dict[str, str]:
    answer = await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    table: dict[str, str] = json.loads(answer.body)["table"]
    return table


@pytest.mark.parametrize("by_kernels", [True, False], ids=["by kernels", "general way"])
def test_sends_are_refused_as_busy_while_a_writer_holds_the_lock_for_too_long(tmp_path, by_kernels):
    async def main() -> None:
        async with broker_of(tmp_path, "osPageCacheBusyTimeOutMills=20") as broker:
            client = LiveClient(broker.address)
            for _ in range(2):
                assert (await client.send("T", b"before")).code == 0
            runs = seen_runs(broker) if by_kernels else [True]
            with StuckWriter(broker) as writer:
                await until(lambda: writer.held_ms() > 20)
                refused = await client.send("T", b"meanwhile")
                new_topic = await client.send("New", b"meanwhile")
                told = await figures(client)
            after = await client.send("T", b"after")

            for answer in (refused, new_topic):
                assert answer.code == ResponseCode.SYSTEM_BUSY
                assert answer.remark is not None
                assert answer.remark.startswith("[PC_SYNCHRONIZED]broker busy")
                assert "another append has been waiting for the disk for" in answer.remark
            assert after.code == 0
            assert (told["putMessageBusyTimes"], told["putMessageFailedTimes"]) == ("2", "2")
            assert int(told["pageCacheLockTimeMills"]) > 20
            assert True in runs, "no send went by kernels: the test saw one way only"
            store = broker.context.store
            assert store.wait_dispatched()
            assert store.get("T", 0, 0).message_count == 3  # and nothing of what was refused

    def seen_runs(broker: Broker) -> list[bool]:
        """Have sends go by kernels; return what the store says to each run."""
        assert broker._sends is not None
        broker._sends.fast_way.use(send_kernels.compiled())
        store, runs = broker.context.store, []
        append = store.append_sends_nowait

        def noting(*given: Any, **more: Any) -> bool:
            runs.append(append(*given, **more))
            return runs[-1]

        store.append_sends_nowait = noting  # type: ignore[method-assign]
        return runs

    run_live(main)
