"""Requests to an object store, by names below an address. An error is one sentence, without keys and headers.

A put is seen whole or not at all. `create` is a put for one of many who try: If-None-Match.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import S3Store

from orbitmq.errors import MissingObjectError, StoreError
from orbitmq.spark.remote.address import Address
from orbitmq.spark.remote.fetched import note_fetched

RETRIES: Final = 6
_STATUS: Final = re.compile(r"status code: (\d{3} [A-Za-z ]+?)(?::|\n|$)")
_CODE: Final = re.compile(r"<Code>(\w+)</Code>")
_STEP: Final = "Look at the address, at AWS_ENDPOINT_URL and at the keys of this process."


class Found(NamedTuple):
    """An object: its name below the address, and how many bytes it has."""

    name: str
    length: int


class Objects:
    """The objects below an address. Any thread may use it; a forked process makes its own (`objects_at`)."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._lengths: dict[str, int] = {}
        settings: dict[str, Any] = {"region": address.region}
        if address.endpoint:
            settings["endpoint"] = address.endpoint
        self._store = S3Store(
            address.bucket,
            prefix=address.prefix or None,
            client_options={"allow_http": address.endpoint.startswith("http://")},
            retry_config={"max_retries": RETRIES},
            **settings,
        )

    # --- looking ---

    def list(self, below: str = "") -> list[Found]:
        """Return all objects whose names start with `below/`, in the order of their names."""
        with self._asked("list", below):
            pages = obstore.list(self._store, below or None)
            return sorted(Found(item["path"], item["size"]) for page in pages for item in page)

    def length(self, name: str) -> int | None:
        """Return how many bytes an object has; None: there is none."""
        try:
            return self._length(name)
        except MissingObjectError:
            return None

    def sealed_length(self, name: str) -> int:
        """Return the same of an object that stays as it is: it is asked once. StoreError: there is none."""
        if name not in self._lengths:
            self._lengths[name] = self._length(name)
        return self._lengths[name]

    def _length(self, name: str) -> int:
        with self._asked("look at", name):
            return int(obstore.head(self._store, name)["size"])

    def read(self, name: str) -> bytes | None:
        """Return an object as a whole; None: there is none."""
        found = self.read_tagged(name)
        return None if found is None else found[0]

    def read_tagged(self, name: str) -> tuple[bytes, str] | None:
        """Return an object and the tag by which a put can tell whether it is still the same."""
        try:
            with self._asked("read", name):
                found = obstore.get(self._store, name)
                return bytes(found.bytes()), str(found.meta["e_tag"])
        except MissingObjectError:
            return None

    def read_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> Iterator[memoryview]:
        """Yield the bytes of each range [start, end), which are fetched side by side."""
        starts, ends = [start for start, _ in ranges], [end for _, end in ranges]
        with self._asked("read", name):
            for (start, end), found in zip(
                ranges, obstore.get_ranges(self._store, name, starts=starts, ends=ends), strict=True
            ):
                view = memoryview(found)
                if len(view) != end - start:
                    what = "became shorter while it was read"
                    raise StoreError(self._url(name), what, "Try again: somebody is changing it.")
                note_fetched(len(view))
                yield view

    # --- changing ---

    def put(self, name: str, data: bytes, *, tag: str | None = None) -> str | None:
        """Write an object, with `tag` only in place of that one; return the new tag, None if it was not."""
        mode: Any = "overwrite" if tag is None else {"e_tag": tag}
        with self._asked("write", name):
            try:
                return str(obstore.put(self._store, name, data, mode=mode)["e_tag"])
            except (PreconditionError, FileNotFoundError):
                if tag is None:
                    raise
                return None

    def create(self, name: str, data: bytes) -> str | None:
        """Write an object that is not there; return its tag, None if one is there."""
        with self._asked("write", name):
            try:
                return str(obstore.put(self._store, name, data, mode="create")["e_tag"])
            except AlreadyExistsError:
                return None

    def put_file(self, name: str, file: Path | IO[bytes]) -> None:
        """Write an object with the bytes of a file."""
        with self._asked("write", name):
            obstore.put(self._store, name, file)

    def copy(self, source: str, target: str) -> None:
        """Write an object with the bytes of another one, without fetching them."""
        with self._asked("copy", source):
            obstore.copy(self._store, source, target)

    def delete(self, names: Sequence[str]) -> None:
        """Remove objects; those that are gone are left out."""
        if names:
            with self._asked("delete", names[0]):
                obstore.delete(self._store, list(names))

    def _url(self, name: str) -> str:
        return self.address.below(name).url

    @contextmanager
    def _asked(self, operation: str, name: str) -> Iterator[None]:
        try:
            yield
        except (BaseError, OSError) as error:
            raise _told(self._url(name), operation, error, self.address.endpoint) from None


def _told(url: str, operation: str, error: Exception, endpoint: str) -> StoreError:
    """Return an error of ours: what a server answers may repeat headers and keys, which stay out of it."""
    text = str(error)
    status, code = _STATUS.search(text), _CODE.search(text)
    said = ", ".join(found[1].strip() for found in (status, code) if found is not None)
    if isinstance(error, FileNotFoundError):
        kind: type[StoreError] = MissingObjectError
        return kind(url, f"{operation} failed: there is no such object ({said})", _STEP)
    if not said:
        said = f"{endpoint or 'Amazon S3'} does not answer"
    return StoreError(url, f"{operation} failed: {said}", _STEP)


def objects_at(address: Address) -> Objects:
    """Return the objects below an address; one connection pool for all who ask in this process."""
    return _objects_at(address, os.getpid())


@lru_cache(maxsize=16)
def _objects_at(address: Address, _process: int) -> Objects:
    return Objects(address)
