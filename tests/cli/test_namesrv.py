"""`orbitmq namesrv run`, as a process."""

import json
import signal
import subprocess

import pytest

from async_run import run_async
from command import ORBITMQ, json_lines
from orbitmq.net.channels import Channels
from orbitmq.wire.command import Command


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_name_server_runs_until_it_is_told_to_stop(tmp_path, number):
    config = tmp_path / "namesrv.conf"
    config.write_text(
        f"listenPort=1\nkvConfigPath={tmp_path / 'kv.json'}\norderMessageEnable=true\n"
    )
    command = [str(ORBITMQ), "namesrv", "run", "--output", "json"]
    command += ["--host", "127.0.0.1", "--port", "0", "--config", str(config)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            address = json.loads(process.stdout.readline())["namesrv"]

            async def main():
                channels = Channels()
                settings = await channels.request(address, Command(319), 3000)
                await channels.close()
                return settings.body.decode()

            assert "orderMessageEnable=true" in run_async(main)
            process.send_signal(number)
            out, err = process.communicate(timeout=10)
        finally:
            process.kill()

    assert process.returncode == 0
    assert out == ""
    assert [line["event"] for line in json_lines(err)] == ["settings", "ready", "stopping"]
