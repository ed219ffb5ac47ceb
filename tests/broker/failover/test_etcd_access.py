"""An etcd that lets in only those with a certificate, a user and a password; settings that do not fit."""

import json
import ssl
from contextlib import closing
from pathlib import Path

import pytest

from async_run import run_async
from certificates import make_certificates, why_no_certificates
from compat.java_cluster import running
from compat.server_process import ServerProcess
from doctor.live_cluster import wait_until
from etcd_server import etcd_server, why_no_etcd
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.failover.access import Access
from orbitmq.broker.failover.etcd import EtcdCoordinator
from orbitmq.broker.failover.place import parse_place
from orbitmq.client import Admin
from orbitmq.errors import ConfigError, WireError
from orbitmq.net.http import JsonServer
from orbitmq.testing import Broker

pytestmark = pytest.mark.feature("F84")
WHY_NOT = why_no_etcd() or why_no_certificates()
FIRST, SECOND = "pass-word/1", "pass-word/2"


def call(etcd: ServerProcess, tls: ssl.SSLContext, *calls: tuple[str, dict[str, str]]) -> None:
    """Have etcd do things one after the other, as its root."""

    async def main() -> None:
        server, token = JsonServer(etcd.address, tls), ""
        for path, body in calls:
            asked = f"/v3/auth/{path}", json.dumps(body).encode()
            status, answer = await server.ask(*asked, 5_000, token)
            assert status == 200, answer
            token = answer.get("token", token)
        server.close()

    run_async(main)


@pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")
def test_a_broker_gets_into_an_etcd_with_tls_and_users_and_never_tells_its_password(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    files, password = make_certificates(tmp_path / "tls"), tmp_path / "password"
    password.write_text(f"{FIRST}\n")
    access = Access(*map(str, files), "root", str(password))
    login = "authenticate", {"name": "root", "password": FIRST}
    with running(etcd := etcd_server(tmp_path, files)):
        add = "user/add", {"name": "root", "password": FIRST}
        root = "role/add", {"name": "root"}
        grant = "user/grant", {"user": "root", "role": "root"}
        call(etcd, access.tls_context(), add, root, grant, ("enable", {}))
        given = {
            "failover": f"etcds://{etcd.address}",
            "failoverLeaseMs": "2000",
            "brokerRole": "SYNC_MASTER",
            "failoverCaFile": str(files.ca),
            "failoverCertFile": str(files.cert),
            "failoverKeyFile": str(files.key),
            "failoverUser": "root",
            "failoverPasswordFile": str(password),
        }
        with Broker(tmp_path / "store", settings=given) as broker, Admin(broker.namesrv) as admin:
            wait_until(lambda: _lease(admin) > 0)
            # Another password ends all tokens. The next one is got with what the file says then.
            another = "user/changepw", {"name": "root", "password": SECOND}
            call(etcd, access.tls_context(), login, another)
            wait_until(lambda: "invalid user ID or password" in _state(admin))
            password.write_text(SECOND)
            wait_until(lambda: _lease(admin) > 0)
            settings = admin.broker_config(broker.address)
        _check_refused(
            etcd, access._replace(cert_file="", key_file=""), "bad certificate|certificate required"
        )
        _check_refused(etcd, access._replace(ca_file=""), "certificate verify failed")
        password.write_text("wrong")
        _check_refused(etcd, access, "invalid user ID or password")
    assert settings["failoverUser"] == "root"
    for told in (str(settings), caplog.text):
        assert FIRST not in told
        assert SECOND not in told


def _lease(admin: Admin) -> int:
    told = admin.replicas()[0].failover
    return told.lease_ms if told is not None else 0


def _state(admin: Admin) -> str:
    told = admin.replicas()[0].failover
    return told.state if told is not None else ""


def _check_refused(etcd: ServerProcess, access: Access, words: str) -> None:
    async def main() -> None:
        place = parse_place(f"etcds://{etcd.address}")
        with closing(EtcdCoordinator(place, "cluster", "name", 2_000, access)) as coordinator:
            with pytest.raises(WireError, match=words) as told:
                await coordinator.look()
            assert "wrong" not in str(told.value)

    run_async(main)


@pytest.mark.parametrize(
    ("place", "given", "words"),
    [
        ("etcd", {"failoverCaFile": "ca.pem"}, "etcds"),
        ("etcds", {"failoverCertFile": "cert.pem"}, "failoverKeyFile"),
        ("etcds", {"failoverKeyFile": "key.pem"}, "failoverKeyFile"),
        ("etcd", {"failoverUser": "root"}, "failoverPasswordFile"),
        ("etcd", {"failoverPasswordFile": "secret"}, "failoverPasswordFile"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(
    tmp_path: Path, place: str, given: dict[str, str], words: str
) -> None:
    settings = {
        "storePathRootDir": str(tmp_path),
        "brokerRole": "SYNC_MASTER",
        "failover": f"{place}://127.0.0.1:2379",
    }
    with pytest.raises(ConfigError, match=words):
        BrokerConfig.from_settings({**settings, **given})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (Access(ca_file="nowhere.pem"), "failoverCaFile"),
        (Access(cert_file="nowhere.pem", key_file="nowhere.pem"), "failoverCertFile"),
        (Access(user="root", password_file="nowhere"), "failoverPasswordFile"),
    ],
)
def test_a_file_that_cannot_be_read_is_told_at_the_start(given: Access, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        EtcdCoordinator(parse_place("etcds://127.0.0.1:1"), "cluster", "name", 1_000, given)
