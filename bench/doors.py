"""The product's names that the benchmarks use, wherever a revision keeps them.

    from doors import MessageStore, StoreConfig

`compare.py` runs the scenarios of this tree over packages of other revisions, older ones too. What moved
between folders stands here with its places, newest first; a name whose module never moved has one.
"""

import importlib
from typing import Any

PLACES = {
    "AppendRequest": ("orbitmq.message",),
    "AppendStatus": ("orbitmq.message",),
    "ClientMessage": ("orbitmq.format.client_batch",),
    "Command": ("orbitmq.wire.command",),
    "FlushMode": ("orbitmq.store.config",),
    "FrameDecoder": ("orbitmq.wire.frame",),
    "Host": ("orbitmq.message",),
    "MessageStore": ("orbitmq.store.store",),
    "StoreConfig": ("orbitmq.store.config",),
    "compiled": ("orbitmq.format.kernels",),
    "encode_client_batch": ("orbitmq.format.client_batch",),
    "encode_command": ("orbitmq.wire.frame", "orbitmq.wire.command"),
    "encode_properties": ("orbitmq.format.properties",),
    "make_session": ("orbitmq.spark.start.session", "orbitmq.spark.session"),
    "rebuild": ("orbitmq.spark.jobs.rebuild.job", "orbitmq.spark.jobs.rebuild"),
    "rebuild_store": ("orbitmq.store.offline.rebuild",),
}

KERNELS = ("orbitmq.format.kernels", "orbitmq.wire.fast.kernels", "orbitmq.sql92.fast.kernels")
"""Modules whose `compiled` compiles kernels; older revisions have only the first."""


def compile_kernels() -> None:
    """Have all kernels of the revision that runs compiled, so that no measured run has to do it."""
    for name in KERNELS:
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("orbitmq"):
                raise
        else:
            module.compiled()


def find(name: str) -> Any:
    """Return what a name stands for in the revision that runs; say where it was looked for if it is gone."""
    for place in PLACES[name]:
        try:
            return getattr(importlib.import_module(place), name)
        except ModuleNotFoundError as error:
            # A library that is missing is no sign of another revision.
            if not (error.name or "").startswith("orbitmq"):
                raise
        except AttributeError:
            continue
    places = ", ".join(PLACES[name])
    raise ImportError(f"this revision has no {name} in {places}: add its place to {__file__}")


def field(value: Any, *names: str) -> Any:
    """Return a field that was renamed: the first of its names that there is."""
    return getattr(value, next(name for name in names if hasattr(value, name)))


def __getattr__(name: str) -> Any:
    if name not in PLACES:
        raise AttributeError(f"module doors has no attribute {name!r}")
    return find(name)
