"""RocketMQ's own mqadmin on our broker and name server prints what it prints on RocketMQ's."""

import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import pytest

from compat.java_cluster import java_broker, java_namesrv
from compat.java_store import needs_java
from compat.mqadmin_commands import MqadminProcess
from compat.our_cluster import our_broker, our_namesrv
from compat.server_process import ServerProcess
from orbitmq.client import Consumer, Message, Producer, ReceivedMessage, RetryLater

pytestmark = [pytest.mark.compat, needs_java]

COMMANDS = """
updateTopic -c DefaultCluster -t AdmT -r 2 -w 2
updateTopic -b BROKER -t AdmOrder -r 1 -w 1 -o true
updateTopic -c DefaultCluster -t AdmFifo -r 1 -w 1 -a +message.type=FIFO
updateTopic -c DefaultCluster -t AdmFifo -r 2 -w 2 -a +message.type=NORMAL,+reserve.time=5
updateTopic -c DefaultCluster -t AdmBad -r 1 -w 1 -a +nope=1
updateTopic -c DefaultCluster -t TBW102
updateSubGroup -c DefaultCluster -g AdmCid -r 3
sendMessage -t AdmT -p hello -k key1 -c TagA -b broker-a -i 0
sendMessage -t AdmT -p world -k key2 -c TagB -b broker-a -i 0
sendMessage -t AdmT -p other -k key1 -c TagC -b broker-a -i 1
sendMessage -t AdmT -p last -c TagA -b broker-a -i 1
clusterList
topicStatus -t AdmT
topicRoute -t AdmT
topicRoute -t AdmOrder -l
topicList
topicClusterList -t AdmT
!subscribe AdmCid AdmT 3
!commit AdmT
topicList -c
consumerProgress -g AdmCid
consumerProgress
consumerProgress -g Nobody
consumerConnection -g AdmCid
consumerConnection -g Nobody
producerConnection -g Nobody -t AdmT
producer -b BROKER
consumerStatus -g AdmCid
brokerStatus -b BROKER
haStatus -b BROKER
getBrokerEpoch -b broker-a
brokerConsumeStats -b BROKER
queryMsgByKey -t AdmT -k key1
queryMsgByKey -t AdmT -k nothing
queryMsgById -t AdmT -i ID1
queryMsgById -t AdmT -i ID1 -g AdmCid -d CLIENT
queryMsgByUniqueKey -t AdmT -i ID0
queryMsgByUniqueKey -t AdmT -i ID0 -g AdmCid -d CLIENT
queryMsgByOffset -t AdmT -b broker-a -i 0 -o 1
queryMsgByOffset -t AdmT -b broker-a -i 0 -o 77
consumeMessage -t AdmT -b broker-a -i 0 -o 0 -c 2
consumeMessage -t AdmT -g AdmReader -c 10
getConsumerConfig -g AdmCid
statsAll -t AdmT
resetOffsetByTime -g AdmCid -t AdmT -s now
resetOffsetByTime -g AdmCid -t AdmT -s 0
resetOffsetByTime -g Nobody -t AdmT -s now
resetOffsetByTime -g AdmCid -t Nope -s now
skipAccumulatedMessage -g AdmCid -t AdmT
cloneGroupOffset -s AdmCid -d AdmClone -t AdmT -o true
setConsumeMode -b BROKER -t AdmT -g AdmCid -m POP -q 2
setConsumeMode -c DefaultCluster -t AdmT -g AdmCid -m PULL
setConsumeMode -b BROKER -t %RETRY%AdmCid -g AdmCid -m POP
updateBrokerConfig -b BROKER -k longPollingEnable -v true
updateBrokerConfig -b BROKER -k brokerConfigPath -v x
updateBrokerConfig -b BROKER -k estimateAccumulation -v false
updateBrokerConfig -b BROKER -k brokerPermission -v 4
topicRoute -t AdmFifo
updateBrokerConfig -b BROKER -k brokerPermission -v 6
cleanExpiredCQ -b BROKER
cleanUnusedTopic -b BROKER
updateTopicPerm -t AdmT -p 4 -b BROKER
wipeWritePerm -b broker-a
addWritePerm -b broker-a
updateKvConfig -s AdmSpace -k k -v v
deleteKvConfig -s AdmSpace -k k
updateOrderConf -t AdmOrder -m get
allocateMQ -t AdmT -i 127.0.0.1
printMsg -t AdmT
deleteSubGroup -c DefaultCluster -g AdmClone -r true
deleteTopic -c DefaultCluster -t AdmT
deleteTopic -c DefaultCluster -t AdmOrder
topicStatus -t AdmT
topicRoute -t AdmOrder
""".strip().splitlines()

UNORDERED = {"topicList", "topicList -c", "consumerProgress", "statsAll -t AdmT"}
"""Commands that print in the order of a hash table, the server's or their own."""

CHANGING = "Tps|Time(Max|Mills|$)|Stamp|Latency|Ratio|Flush|DirCapacity|Behind|QueueSize"
"""Names of figures that depend on the moment."""

Starts = Callable[..., AbstractContextManager[ServerProcess]]


class Printed(NamedTuple):
    """What mqadmin printed for each command on both clusters."""

    java: dict[str, str]
    ours: dict[str, str]


def run_on(namesrv: Starts, broker: Starts, directory: Path) -> dict[str, str]:
    with (
        namesrv(directory) as names,
        broker(directory, namesrv=names.address) as served,
        MqadminProcess(names.address, served.address, directory / "mqadmin") as mqadmin,
    ):
        printed = mqadmin.run_all(COMMANDS)
        mqadmin.names["TRACED"] = leave_trace(names.address)
        return printed | mqadmin.run_all([TRACE])


TRACE = "queryMsgTraceById -i TRACED"


def leave_trace(namesrv: str) -> str:
    """Have our clients write a trace: sent, failed, consumed. Return the message's id."""
    seen: list[int] = []
    enough = threading.Event()

    def handle(message: ReceivedMessage) -> None:
        seen.append(message.reconsume_times)
        if message.reconsume_times == 0:
            raise RetryLater
        enough.set()

    with Producer(namesrv, "AdmTracePid", trace=True) as producer:
        sent = producer.send(Message("AdmTraced", b"x", keys="k"))
    topics, start = ["AdmTraced"], {"start_from": "first", "retry_level": 1, "trace": True}
    with Consumer(namesrv, "AdmTraceCid", topics, handler=handle, **start):
        assert enough.wait(60), seen
    return sent.message_id


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Printed:
    clusters = [(java_namesrv, java_broker, "java"), (our_namesrv, our_broker, "ours")]
    with ThreadPoolExecutor(len(clusters)) as pool:
        runs = [
            pool.submit(run_on, namesrv, broker, tmp_path_factory.mktemp(name))
            for namesrv, broker, name in clusters
        ]
        return Printed(*(run.result() for run in runs))


@pytest.mark.parametrize("command", [each for each in COMMANDS if each[:12] != "brokerStatus"])
def test_mqadmin_prints_the_same_on_both(printed: Printed, command: str) -> None:
    java, ours = (lines_of(command, printed_on[command]) for printed_on in printed)

    assert ours == java


@pytest.mark.feature("F113")
def test_mqadmin_prints_the_trace_of_our_clients(printed: Printed) -> None:
    java, ours = (
        [line.split() for line in lines_of(TRACE, printed_on[TRACE])] for printed_on in printed
    )

    assert ours == java
    rows = [" ".join(line) for line in ours]
    assert rows == [
        "#Type #ProducerGroup #ClientHost #SendTime #CostTimes #Status",
        "Pub AdmTracePid 127.0.0.1 TIME Nms success",
        "#Type #ConsumerGroup #ClientHost #ConsumerTime #CostTimes #Status",
        "Sub AdmTraceCid 127.0.0.1 TIME Nms failed",
        "Sub AdmTraceCid 127.0.0.1 TIME Nms success",
    ]


def lines_of(command: str, text: str) -> list[str]:
    lines = [without_figures(line.rstrip()) for line in text.splitlines() if line.strip()]
    if command == TRACE:
        lines = [re.sub(r"\d+ms", "Nms", line) for line in lines]
    if command.startswith("producer -b"):
        # The tool's own producers of a moment ago may not have left yet.
        lines = [line for line in lines if "@subscriber" in line]
    return sorted(lines) if command in UNORDERED else lines


def without_figures(line: str) -> str:
    """Return a line without rates and disk use, which depend on the moment."""
    line = re.sub(r"\b\d+\.\d{2,}\(\d+,\d+ms(\|\d+,\d+ms)?\)", "RATE(LOAD)", line)
    line = re.sub(r" \d+-\d+(\(\d+\.\dw, )", r" PROGRESS\1", line)
    line = re.sub(r" \d+ +\d+\.\d\d +0\.\d{4} ", " WAIT HOURS DISK ", line)
    line = re.sub(r"((TPS:) +)[\d.]+", r"\1RATE", line)
    line = re.sub(r"^(AdmT +AdmCid +\d+) .*", r"\1 RATES", line)
    return re.sub(r"^(AdmCid .*CLUSTERING +)\d+ +(\d+)", r"\1RATE \2", line)


OUR_FIGURES = {  # beside RocketMQ's
    *("flushAverageMicros", "flushMaxMicros", "mappedBytes", "mappedFiles"),
    *("parkedPulls", "putMessageBusyTimes", "unflushedBytes"),
}


def test_broker_status_has_the_same_figures_in_the_same_form(printed: Printed) -> None:
    java, ours = (
        dict(re.split(r"\s*: ?", line, maxsplit=1) for line in text.splitlines() if ":" in line)
        for text in (printed_on["brokerStatus -b BROKER"] for printed_on in printed)
    )

    services = {name for name in ours if name.startswith("service_")}
    assert services
    assert ours.keys() - OUR_FIGURES - services == java.keys()
    assert ours.keys() >= OUR_FIGURES
    changing = {name for name in java if re.search(CHANGING, name)}
    steady = java.keys() - changing - {"runtime"}
    assert {name: ours[name] for name in steady} == {name: java[name] for name in steady}
    assert "putMessageTimesTotal" in steady
    for name in ("runtime", "commitLogDirCapacity", "remainHowManyDataToFlush"):
        shape = re.compile(re.sub(r"[\d.]+", r"[\\d.]+", re.escape(java[name]).replace(r"\.", ".")))
        assert shape.fullmatch(ours[name]), (name, ours[name], java[name])


def test_everything_that_was_asked_for_really_happened(printed: Printed) -> None:
    ours = printed.ours

    assert (
        "create topic to ADDRESS success."
        in ours["updateTopic -c DefaultCluster -t AdmT -r 2 -w 2"]
    )
    assert ours["!subscribe AdmCid AdmT 3"].strip() == "got 3"
    assert ours["queryMsgByKey -t AdmT -k key1"].count("\nID ") == 2
    directly = ours["queryMsgById -t AdmT -i ID1 -g AdmCid -d CLIENT"]
    assert "consumeResult=CR_SUCCESS" in directly
    assert "hello" in ours["consumeMessage -t AdmT -b broker-a -i 0 -o 0 -c 2"]
    assert ours["printMsg -t AdmT"].count("MSGID: ID") == 4
