"""Signature of a request: how a client proves that it knows a secret key (RocketMQ's ACL 1.0)."""

import base64
import hashlib
import hmac

from orbitmq.client.core.config import ClientConfig
from orbitmq.wire.command import Command


def sign(command: Command, config: ClientConfig) -> None:
    """Add AccessKey, SecurityToken and Signature to the fields of a request."""
    fields = command.fields = dict(command.fields or {})
    fields["AccessKey"] = config.access_key
    if config.security_token:
        fields["SecurityToken"] = config.security_token
    fields["Signature"] = signature(fields, command.body, config.secret_key)


def signature(fields: dict[str, str], body: bytes, secret_key: str) -> str:
    """Return base64(HMAC-SHA1(values in the order of their names, then the body))."""
    values = [fields[name].encode() for name in sorted(fields) if name != "Signature"]
    digest = hmac.digest(secret_key.encode(), b"".join((*values, body)), hashlib.sha1)
    return base64.b64encode(digest).decode()
