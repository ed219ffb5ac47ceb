"""Logs of real servers: what is in them, how often, where they go, and how that changes while they run."""

import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from async_run import run_async
from command import ORBITMQ, json_lines, run
from live_broker import letters, send_header
from orbitmq.net.channels import Channels
from orbitmq.setting_keys import LOG_KEYS
from orbitmq.settings import parse_properties
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import ONEWAY_FLAG, Command
from server_process import ServerProcess, ask, server_process, until

BODY = b"a body is nobody else's business"
SECRET = "s3cr3t-t0ken"
UNKNOWN = 4711
BROKER = [ORBITMQ, "broker", "run", "--host", "127.0.0.1", "--port", "0", "--name", "b1"]


@dataclass
class Conversation:
    """What was asked of a broker, and what came of it."""

    root: Path
    process: ServerProcess
    remarks: dict[str, str | None] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    exit_code: int = -1

    @property
    def file(self) -> Path:
        return self.root / "logs" / "broker.log"

    async def change(self, channels: Channels, *lines: str) -> None:
        body = "\n".join(lines).encode()
        answer = await ask(channels, self.process.ready["broker"], 25, fields={}, body=body)
        self.remarks[lines[0].replace(str(self.root), "ROOT")] = answer.remark

    async def refuse(self, channels: Channels, *codes: int) -> None:
        for code in codes:
            answer = await ask(channels, self.process.ready["broker"], code, fields={}, body=BODY)
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


async def talk(told: Conversation) -> None:
    channels, address = Channels(), told.process.ready["broker"]
    await told.refuse(channels, *[UNKNOWN] * 20)
    bad_send = letters(send_header("no good name!"))
    await ask(channels, address, RequestCode.SEND_MESSAGE_V2, fields=bad_send, body=BODY)
    pull = {"topic": "Nowhere", "consumerGroup": "G", "queueId": "0", "queueOffset": "0"}
    pull |= {"maxMsgNums": "1", "sysFlag": "0", "commitOffset": "0", "subVersion": "0"}
    await ask(channels, address, RequestCode.PULL_MESSAGE, fields=pull)
    await told.change(channels, "logLevel=error")
    await told.refuse(channels, 5001)
    answer = await ask(channels, address, RequestCode.GET_BROKER_CONFIG, fields={})
    told.settings = {key: value for _, key, value in parse_properties(answer.body.decode())}
    await told.change(channels, "logLevel=info", f"metricsGrpcExporterHeader={SECRET}2")
    await told.refuse(channels, 5002)
    await told.change(channels, "slowRequestMillis=0")
    await ask(channels, address, RequestCode.GET_BROKER_RUNTIME_INFO, fields={})
    await told.change(channels, "slowRequestMillis=60000")
    await told.change(channels, "logLevel=loud")
    await told.change(channels, "logFile=/elsewhere/broker.log")
    await told.change(channels, f"logFile={told.root}/logs/broker.conf")
    await told.change(channels, f"logFile={told.root}/logs/link.log")
    # Only now: the log is somewhere else from here on.
    await told.change(channels, f"logFile={told.file}", "logFileBytes=3000", "logFileCount=2")
    await told.refuse(channels, *range(6000, 6060))
    await channels.close()


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Conversation]:
    folder = tmp_path_factory.mktemp("broker")
    root = folder / "store"
    (root / "logs").mkdir(parents=True)
    (root / "logs" / "broker.conf").write_text("brokerName=b2\n")
    (root / "logs" / "link.log").symlink_to(folder / "elsewhere")
    command = [*BROKER, "--store", root, "--set", f"metricsGrpcExporterHeader={SECRET}"]
    command += ["--set", "mappedFileSizeCommitLog=1048576", "--set", "fileReservedTimes=4"]
    with server_process(folder, command, WATCHDOG_USEC="200000") as process:
        told = Conversation(root, process)
        process.manager.wait_for("WATCHDOG")
        run_async(lambda: talk(told))
        process.manager.wait_for("WATCHDOG")
        moved = told.file.rename(told.file.with_suffix(".moved"))
        process.process.send_signal(signal.SIGHUP)
        until(lambda: told.file.exists() and told.file.stat().st_size > 0)
        told.exit_code = process.stop()
        assert moved.exists()
        yield told


def refused(told: Conversation, request: str) -> list[dict[str, object]]:
    return [line for line in told.process.events("request refused") if line["request"] == request]


def test_every_line_is_json_with_time_level_component_and_event(told: Conversation) -> None:
    files = [told.process.errors, *told.file.parent.glob("broker.log*")]

    lines = [line for file in files for line in told.process.log(file)]

    assert len(lines) > 20
    assert {tuple(line)[:4] for line in lines} == {("time", "level", "component", "event")}
    assert {line["level"] for line in lines} == {"info", "warning"}
    assert all(line["time"][10] == "T" and line["time"].endswith("Z") for line in lines)


def test_service_manager_hears_of_start_ready_life_and_stop(told: Conversation) -> None:
    said = told.process.manager.said
    kinds = [next(iter(notice)) for notice in said]

    assert said[0] == {"STATUS": f"opening the store {told.root}"}
    assert kinds.index("READY") == 1
    assert told.process.ready["broker"] in said[1]["STATUS"]
    assert kinds.count("WATCHDOG") >= 2
    assert kinds[-1] == "STOPPING"
    assert told.exit_code == 0


def test_settings_are_said_at_the_start_with_those_that_differ(told: Conversation) -> None:
    (said,) = told.process.events("settings")

    assert said["component"] == "settings"
    assert said["settings"]["brokerClusterName"] == "DefaultCluster"
    assert said["settings"]["mappedFileSizeCommitLog"] == "1048576"
    assert said["changed"]["mappedFileSizeCommitLog"] == {
        "default": str(1 << 30),
        "from": "flag",
    }
    assert said["changed"].keys() - {"brokerIP1"} == {  # the machine may have no other address
        *("bindAddress", "brokerName", "fileReservedTimes", "listenPort"),
        *("mappedFileSizeCommitLog", "metricsGrpcExporterHeader", "storePathRootDir"),
    }


def test_what_was_wrong_with_the_settings_is_in_the_log(told: Conversation) -> None:
    (line,) = [line for line in told.process.log() if line["component"] == "settings"][:1]

    assert (line["level"], line["event"]) == (
        "warning",
        "flag: unknown setting fileReservedTimes; did you mean fileReservedTime?",
    )


def test_no_body_and_no_secret_is_in_any_log(told: Conversation) -> None:
    files = [told.process.errors, *told.file.parent.glob("broker.log*")]
    text = "".join(file.read_text() for file in files)

    assert SECRET not in text
    assert BODY.decode() not in text
    (said,) = told.process.events("settings")
    assert said["settings"]["metricsGrpcExporterHeader"] == "******"
    changes = [line["settings"] for line in told.process.events("settings changed")]
    assert {"logLevel": "info", "metricsGrpcExporterHeader": "******"} in changes


def test_refused_requests_are_logged_with_who_and_why(told: Conversation) -> None:
    (send,), (pull,) = refused(told, "SEND_MESSAGE_V2"), refused(told, "PULL_MESSAGE")

    assert str(send["peer"]).startswith("127.0.0.1:")
    assert (send["topic"], send["group"], send["count"]) == ("no good name!", "PG", 1)
    assert send["code"] == "INVALID_PARAMETER"
    assert "topic" in str(send["reason"])
    assert (pull["topic"], pull["group"]) == ("Nowhere", "G")
    assert (send["component"], send["level"]) == ("net.request_log", "info")


def test_a_refusal_that_is_repeated_is_one_line_and_a_count(told: Conversation) -> None:
    lines = refused(told, str(UNKNOWN))

    assert lines[0]["count"] == 1
    assert len(lines) <= 4  # one in a second; the requests take far less than three
    assert sum(int(str(line["count"])) for line in lines) <= 20
    assert lines[0]["reason"] == f" request type {UNKNOWN} not supported"


def test_slow_requests_are_logged_from_the_limit_on(told: Conversation) -> None:
    slow = told.process.events("request slow")

    assert "GET_BROKER_RUNTIME_INFO" in {line["request"] for line in slow}
    assert "PULL_MESSAGE" not in {line["request"] for line in slow}
    assert all(line["milliseconds"] >= 0 and line["requests"] == 1 for line in slow)


def test_level_changes_while_it_runs(told: Conversation) -> None:
    assert told.settings["logLevel"] == "error"
    assert refused(told, "5001") == []
    assert [line["count"] for line in refused(told, "5002")] == [1]


def test_a_log_that_cannot_be_is_refused_with_a_sentence(told: Conversation) -> None:
    end = "Nothing was changed."
    place = f"must be in {told.root}/logs while the server runs"

    assert told.remarks["logLevel=loud"] == (
        f"setting logLevel = 'loud': must be one of debug, info, warning, error. {end}"
    )
    assert place in (told.remarks["logFile=/elsewhere/broker.log"] or "")
    assert "is no log of a server" in (told.remarks["logFile=ROOT/logs/broker.conf"] or "")
    assert told.remarks["logFile=ROOT/logs/link.log"] is not None
    assert (told.root / "logs" / "broker.conf").read_text() == "brokerName=b2\n"


def test_file_changes_while_it_runs_and_is_rotated_by_size(told: Conversation) -> None:
    folder = told.file.parent
    names = {path.name for path in folder.glob("broker.log*")}

    assert told.remarks["logFile=ROOT/logs/broker.log"] is None
    assert names == {"broker.log", "broker.log.1", "broker.log.2"}
    assert all(folder.joinpath(name).stat().st_size <= 3000 for name in names)
    older, newer = (
        {line["request"] for line in told.process.events("request refused", folder / name)}
        for name in ("broker.log.2", "broker.log.1")
    )
    assert max(older) < min(newer)
    assert not newer & {line["request"] for line in told.process.events("request refused")}


def test_file_is_opened_again_when_somebody_has_moved_it(told: Conversation) -> None:
    moved = told.process.log(told.file.with_suffix(".moved"))
    after = [line["event"] for line in told.process.log(told.file)]

    assert moved[-1]["event"] != "stopping"
    assert after[:2] == ["log file opened again", "stopping"]


def test_changed_logs_are_kept_for_the_next_start(told: Conversation) -> None:
    kept = dict(
        line.split("=", 1)
        for line in (told.root / "config" / "orbitmq.properties").read_text().splitlines()
        if not line.startswith("#")
    )

    assert {key: kept[key] for key in LOG_KEYS} == {
        "logLevel": "info",
        "logFile": str(told.file),
        "logFileBytes": "3000",
        "logFileCount": "2",
        "slowRequestMillis": "60000",
    }


# Name servers


async def ask_name_server(address: str) -> list[str | None]:
    channels = Channels()
    remarks = []
    for body in (b"logLevel=warning\n", b"logFile=/x.log\n", b"logLevel=debug\n"):
        await ask(channels, address, RequestCode.GET_ROUTEINFO_BY_TOPIC, fields={"topic": "T"})
        answer = await ask(channels, address, 318, fields={}, body=body)
        remarks.append(answer.remark)
    oneway = Command(UNKNOWN, {}, BODY, flag=ONEWAY_FLAG)
    (await channels.get(address)).oneway(oneway)
    await ask(channels, address, RequestCode.GET_NAMESRV_CONFIG, fields={})
    await channels.close()
    return remarks


def test_a_name_server_logs_to_the_file_of_its_flag(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.log"
    command = [ORBITMQ, "namesrv", "run", "--host", "127.0.0.1", "--port", "0", "--log-file", file]
    environment = {"ORBITMQ_KV_CONFIG_PATH": str(tmp_path / "kv.json"), "WATCHDOG_PID": "1"}
    address = f"@orbitmq-test-{os.getpid()}"
    with server_process(tmp_path, command, address, WATCHDOG_USEC="1", **environment) as process:
        remarks = run_async(lambda: ask_name_server(process.ready["namesrv"]))
        assert process.stop() == 0
        assert process.errors.read_text() == ""
        routes = process.events("request refused", file)
        changed = process.events("settings", file)[0]["changed"]

    assert remarks[0] is None
    assert f"must be in {tmp_path} while the server runs" in str(remarks[1])
    assert [line["request"] for line in routes] == ["GET_ROUTEINFO_BY_TOPIC", str(UNKNOWN)]
    assert (routes[0]["code"], routes[0]["topic"]) == ("TOPIC_NOT_EXIST", "T")
    assert changed["kvConfigPath"]["from"] == "environment, ORBITMQ_KV_CONFIG_PATH"
    assert changed["logFile"] == {"default": "", "from": "flag"}
    assert not any("WATCHDOG" in notice for notice in process.manager.said), "it is for process 1"


def test_on_a_terminal_the_log_is_text_and_changed_settings_are_marked(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    command = [ORBITMQ, "namesrv", "run", "--host", "127.0.0.1", "--port", "0"]
    environment = {**os.environ, "ORBITMQ_KV_CONFIG_PATH": str(tmp_path / "kv.json")}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=theirs, text=True, env=environment
    ) as process:
        try:
            os.close(theirs)
            assert process.stdout is not None
            assert process.stdout.readline().startswith("name server 127.0.0.1:")
            process.send_signal(signal.SIGHUP)  # the terminal is closed, and there is no log file
            assert process.wait(30) == 0
            text = os.read(ours, 100_000).decode()
        finally:
            process.kill()
            os.close(ours)

    assert "* listenPort=0  (default 9876, from flag)\r\n" in text
    assert "      orderMessageEnable=false\r\n" in text
    assert "\x1b[36mnamesrv\x1b[0m=127.0.0.1:" in text
    assert '{"time"' not in text


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--log-level", "loud", "must be one of debug, info, warning, error"),
        ("--log-file", "/nowhere/at/all.log", "cannot be written: No such file or directory"),
    ],
)
def test_a_start_with_a_log_that_cannot_be_says_so(option: str, value: str, sentence: str) -> None:
    result = run("namesrv", "run", "--host", "127.0.0.1", "--port", "0", option, value)

    assert result.returncode == 2
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr


def test_why_a_server_could_not_start_is_in_its_log_file_too(tmp_path: Path) -> None:
    (tmp_path / "kv.json").write_text("this is no JSON")
    file = tmp_path / "namesrv.log"
    result = run(
        *("namesrv", "run", "--host", "127.0.0.1", "--port", "0", "--log-file", file),
        ORBITMQ_KV_CONFIG_PATH=str(tmp_path / "kv.json"),
    )

    last = json_lines(file.read_text())[-1]

    assert result.returncode != 0
    assert (last["level"], last["event"]) == ("error", "ended by an error")
    assert str(last["reason"]) in result.stderr
