"""Signed requests."""

from golden_frames import frames
from orbitmq.client.core.calls import sign, signature
from orbitmq.client.core.config import ClientConfig
from orbitmq.wire.command import Command


def test_the_signature_of_the_known_example():
    fields = {"topic": "T", "queueId": "0", "AccessKey": "ak"}

    assert signature(fields, b"hello", "sk") == "uYCAbNQRpp/TX/lghjjJGGDcddI="


def test_every_signed_request_of_a_java_client_is_signed_alike():
    signed = [
        frame.command
        for frame in frames("java-json/acl-signed")
        if frame.to_server and "Signature" in (frame.command.fields or {})
    ]

    assert len(signed) > 40
    for command in signed:
        fields = command.fields or {}
        assert signature(fields, command.body, "gwSecretKey-0123456789") == fields["Signature"]


def test_signing_adds_three_fields_and_changes_no_dict_of_others():
    fields = {"topic": "T"}
    command = Command(105, fields)
    config = ClientConfig(access_key="a", secret_key="s", security_token="t")

    sign(command, config)

    assert fields == {"topic": "T"}
    assert (command.fields or {}).keys() == {"topic", "AccessKey", "SecurityToken", "Signature"}
