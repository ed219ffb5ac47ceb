"""Where a store or a lake at a distance lies: `s3://bucket/prefix`, and how its server is reached.

    s3://archive/broker-a/store
    s3://archive/broker-a/store?endpoint=http://minio:9000&region=eu-west-1

What the address does not say, the usual variables do: AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, AWS_REGION or
AWS_DEFAULT_REGION. Keys come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN), or
from the machine's role; never from an address, which is shown and logged.
"""

import os
import re
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final
from urllib.parse import parse_qsl, unquote, urlencode

from orbitmq.errors import ConfigError

SCHEME: Final = "s3://"
REGION: Final = "us-east-1"
_ADDRESS: Final = re.compile(r"s3:/{1,2}([^/?]+)/?([^?]*)(?:\?(.*))?", re.IGNORECASE | re.DOTALL)
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,62}")
_ENDPOINT: Final = re.compile(r"https?://[^/?#@\s]+/?")


def is_remote(path: object) -> bool:
    """Tell whether this is an address of an object store, not a path; `Path` makes one slash of two."""
    return str(path).lower().startswith("s3:/")


@dataclass(frozen=True, slots=True)
class Address:
    """A place in an object store. Immutable; travels to tasks."""

    bucket: str
    prefix: str
    endpoint: str  # empty: Amazon's own
    region: str

    @classmethod
    def of(cls, given: object, name: str = "path") -> "Address":
        """Return what a text says, with the variables' help. ConfigError names the option."""
        text = str(given)
        if find_spec("obstore") is None:
            rule = "the package obstore is missing; pip install 'orbitmq[s3]'"
            raise ConfigError(name, "s3://", rule)
        match = _ADDRESS.fullmatch(text)
        if match is None:
            raise ConfigError(name, text, "must be s3://bucket/prefix")
        bucket, prefix, query = match[1], match[2].strip("/"), match[3] or ""
        if "@" in bucket:
            rule = "has keys in it; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead"
            raise ConfigError(name, f"s3://...@{bucket.rpartition('@')[2]}", rule)
        if not _BUCKET.fullmatch(bucket) or "//" in prefix or ".." in prefix.split("/"):
            raise ConfigError(name, text, "must be s3://bucket/prefix")
        settings = dict(parse_qsl(query, keep_blank_values=True))
        if unknown := sorted(settings.keys() - {"endpoint", "region"}):
            rule = f"takes endpoint and region behind the question mark, not {unknown[0]}"
            raise ConfigError(name, f"{SCHEME}{bucket}/{prefix}", rule)
        endpoint = settings.get("endpoint") or _of_variables(
            "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"
        )
        if endpoint and not _ENDPOINT.fullmatch(endpoint):
            raise ConfigError(
                "endpoint", endpoint.rpartition("@")[2], "must be http(s)://host:port"
            )
        region = settings.get("region") or _of_variables("AWS_REGION", "AWS_DEFAULT_REGION")
        return cls(bucket, unquote(prefix), endpoint.rstrip("/"), region or REGION)

    @property
    def url(self) -> str:
        """The place, as people and other tools write it."""
        return f"{SCHEME}{self.bucket}/{self.prefix}".rstrip("/")

    @property
    def text(self) -> str:
        """All of it: what another process needs, whose variables may be others."""
        given = {"endpoint": self.endpoint, "region": self.region}
        return f"{self.url}?{urlencode({name: value for name, value in given.items() if value})}"

    def below(self, name: str) -> "Address":
        """Return a place below this one."""
        prefix = f"{self.prefix}/{name}" if self.prefix else name
        return Address(self.bucket, prefix.strip("/"), self.endpoint, self.region)

    def __truediv__(self, name: str) -> "Address":
        return self.below(name)

    def __str__(self) -> str:
        return self.url


def _of_variables(*names: str) -> str:
    return next((value for name in names if (value := os.environ.get(name, "").strip())), "")
