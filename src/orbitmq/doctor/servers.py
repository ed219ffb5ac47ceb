"""The doctor on servers: asks a name server, or a broker and its name server, and all that is behind it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import PurePath
from typing import Final

from orbitmq.client.admin.results import BrokerInfo, LogCopy
from orbitmq.client.sync.admin import Admin
from orbitmq.clock import Clock, SystemClock
from orbitmq.doctor import disk, failover, flush, key, newest, reach, replicas, store_times
from orbitmq.doctor.asked import Asked
from orbitmq.doctor.groups import GroupDoctor
from orbitmq.doctor.report import Finding, Report, Severity, command
from orbitmq.doctor.topic_queues import Kind, check_topic
from orbitmq.errors import NoRouteError, OrbitError, ResponseError, WireError
from orbitmq.store.spark_dispatch.handover import dispatch_words

_LOOK_AGAIN_MS: Final = 500
_HIDDEN: Final = {Kind.UNREADABLE: Severity.CRITICAL, Kind.EXPOSED: Severity.WARNING}


def examine_servers(asked: Asked, clock: Clock | None = None) -> Report:
    """Look at servers. UnreachableError: nobody answers at the address."""
    with Admin(asked.target) as admin:
        try:
            admin.clusters()
        except ResponseError:  # only name servers know that question
            return _of_broker(admin, asked, clock or SystemClock())
        return ServersDoctor(admin, asked, asked.target, clock or SystemClock()).run()


def _of_broker(admin: Admin, asked: Asked, clock: Clock) -> Report:
    """Look at a broker, and at its cluster where its name server answers."""
    config = admin.broker_config(asked.target)
    namesrv = config.get("namesrvAddr", "")
    alone = BrokerInfo(
        config.get("brokerClusterName", ""), config.get("brokerName", ""), 0, asked.target
    )
    if not namesrv:
        return ServersDoctor(admin, asked, "", clock).run_alone(alone)
    with Admin(namesrv) as known:
        try:
            known.clusters()
        except WireError as failure:
            report = ServersDoctor(admin, asked, "", clock).run_alone(alone)
            report.add(reach.SUBJECT, "", [reach.no_namesrv(asked.target, namesrv, failure.what)])
            return report
        return ServersDoctor(known, asked, namesrv, clock).run()


class ServersDoctor:
    """One look at a cluster. Not thread-safe."""

    def __init__(self, admin: Admin, asked: Asked, namesrv: str, clock: Clock) -> None:
        self.admin, self.asked, self.namesrv, self._clock = admin, asked, namesrv, clock
        self.report = Report(asked.target)
        self.now_ms = clock.now_ms()
        self._configs: dict[str, dict[str, str]] = {}

    def run(self) -> Report:
        """Look at brokers, topics and groups."""
        brokers = self.admin.brokers()
        host = self.asked.target.split(";")[0].rpartition(":")[0]
        down = list(reach.examine(brokers, host))
        names = " ".join(f"{broker.name} at {broker.address}" for broker in brokers)
        self.report.add(reach.SUBJECT, f"{names or 'none'} answer", down)
        self._brokers([b for b in brokers if b.is_primary and not b.error])
        self._replicas(brokers)
        self._topics()
        GroupDoctor(
            self.admin, self.asked, self.report, self.advise, self.now_ms, self._filters_sql()
        ).run()
        if self.asked.topic is not None and self.asked.key is not None:
            self._key(self.asked.topic, self.asked.key)
        return self.report

    def run_alone(self, broker: BrokerInfo) -> Report:
        """Look at a broker without a name server."""
        broker.runtime = self.admin.broker_runtime(broker.address)
        self._brokers([broker])
        with suppress(ResponseError):  # RocketMQ 4 does not know that question
            copies = self.admin.replicas(broker.address)
            self._copies(copies, replicas.examine(copies, self._list, self.now_ms, alone=True))
        return self.report

    def advise(self, *words: object) -> str:
        """Return a command for this cluster."""
        return command(*words, "--namesrv", self.namesrv)

    # --- brokers ---

    def _replicas(self, brokers: list[BrokerInfo]) -> None:
        """Look at copies of logs; twice where there are replicas: one that comes nearer is well."""
        if any(not broker.is_primary for broker in brokers):
            self._clock.sleep(_LOOK_AGAIN_MS)
        copies = self.admin.replicas()
        found = list(replicas.examine(copies, self._list, self.now_ms))
        if any(not broker.is_primary for broker in brokers):
            told = {finding.where for finding in found}
            standing = replicas.examine_standing(brokers, self.admin.brokers(), self._list)
            found += [finding for finding in standing if finding.where not in told]
        self._copies(copies, found)

    def _copies(self, copies: list[LogCopy], found: Iterable[Finding]) -> None:
        """Tell what is wrong with replicas, and with their number where a primary waits for some."""
        told, seen = list(found), []
        for primary in (copy for copy in copies if copy.is_primary and not copy.error):
            rules = replicas.SyncRules.read(self._configs.get(primary.address, {}))
            in_sync = replicas.count_in_sync(copies, primary.broker_name)
            told += replicas.examine_count(primary, in_sync, rules, self._list)
            name = primary.broker_name or primary.address
            seen.append(f"{name} and {in_sync - 1} in sync")
        told += failover.examine(copies, self._list, self._promote)
        if told or any(not copy.is_primary for copy in copies):
            self.report.add(replicas.SUBJECT, "; ".join(seen) or "follow", told)

    def _list(self, broker: str) -> str:
        """Return the command that lists the copies of a broker."""
        words = ("broker", "replicas", broker)
        return self.advise(*words) if self.namesrv else command(*words)

    def _promote(self, address: str) -> str:
        """Return the command that makes a broker the primary whatever it lacks."""
        words = ("broker", "promote", address, "--force")
        return self.advise(*words) if self.namesrv else command(*words)

    def _brokers(self, brokers: list[BrokerInfo]) -> None:
        for broker in brokers:
            self._configs[broker.address] = config = self.admin.broker_config(broker.address)
            lag = self._lag(broker)
            root = config.get("storePathRootDir", "STORE_DIR")
            check = command("store", "check", root)
            catch_up = command(*dispatch_words(root, live=True)) if lag.by_spark else check
            found = [*newest.examine_lag(lag, catch_up), *self._ahead(broker, check)]
            seen = f"{broker.name} has dispatched all of its log"
            self.report.add(newest.SUBJECT, seen, found)
            facts = flush.FlushFacts.read(broker.name, broker.runtime, config)
            advise = self._setting(broker)
            self.report.add(flush.SUBJECT, flush.summary(facts), flush.examine(facts, advise))
            self._disk(broker, config)

    def _setting(self, broker: BrokerInfo) -> Callable[..., str]:
        """Return what makes the command that changes settings of a broker; without any it shows them."""

        def advise(**settings: object) -> str:
            words = [w for name, value in settings.items() for w in ("--set", f"{name}={value}")]
            return command("broker", "config", broker.address, *words)

        return advise

    def _lag(self, broker: BrokerInfo) -> newest.DispatchLag:
        """Look twice: what gets less is no finding."""
        behind = int(broker.runtime.get("dispatchBehindBytes", 0))
        standing = False
        if behind > 0:
            before = int(broker.runtime["commitLogMaxOffset"]) - behind
            self._clock.sleep(_LOOK_AGAIN_MS)
            broker.runtime = self.admin.broker_runtime(broker.address)
            behind = int(broker.runtime.get("dispatchBehindBytes", 0))
            standing = int(broker.runtime["commitLogMaxOffset"]) - behind <= before
        by_spark = broker.runtime.get("dispatchMode") == "spark"
        return newest.DispatchLag(
            where=broker.name, behind_bytes=max(behind, 0), standing=standing, by_spark=by_spark
        )

    def _ahead(self, broker: BrokerInfo, check: str) -> Iterator[Finding]:
        for text in filter(None, broker.runtime.get("parkedPullsAhead", "").split(";")):
            topic, queue_id, offset, end = text.split("@")
            yield Finding(
                severity=Severity.CRITICAL,
                subject=newest.SUBJECT,
                what="a pull waits at an offset that its queue does not have",
                where=f"{broker.name}, {topic}, queue {queue_id}",
                numbers={"offset": int(offset), "max_offset": int(end)},
                meaning="its consumer sees nothing before the queue has grown past that offset",
                command=check,
            )

    def _disk(self, broker: BrokerInfo, config: dict[str, str]) -> None:
        runtime = broker.runtime
        first, last = int(runtime.get("earliestMessageTimeStamp", 0)), self.now_ms
        start, end = (int(runtime.get(f"commitLog{name}Offset", 0)) for name in ("Min", "Max"))
        facts = disk.DiskFacts(
            disks=_disk_uses(runtime, config),
            limits=disk.Limits(
                clean=int(config.get("diskMaxUsedSpaceRatio", 75)),
                forced=int(config.get("diskSpaceCleanForciblyRatio", 85)),
                refuse=int(config.get("diskSpaceWarningLevelRatio", 90)),
            ),
            now_ms=self.now_ms,
            log_bytes=max(end - max(start, 0), 0),
            first_ms=max(first, 0),
            last_ms=last,
            where=f"{broker.name}, ",
        )
        hours = max(1, int(config.get("fileReservedTime", 72)) // 2)
        advice = disk.DiskAdvice(self._setting(broker)(fileReservedTime=hours))
        self.report.add(disk.SUBJECT, disk.summary(facts), disk.examine(facts, advice))

    def _filters_sql(self) -> bool:
        """Whether all brokers evaluate SQL92."""
        settings = [config.get("enablePropertyFilter") for config in self._configs.values()]
        return bool(settings) and all(setting == "true" for setting in settings)

    # --- topics ---

    def _topics(self) -> None:
        names = [self.asked.topic] if self.asked.topic else self.admin.topics()
        found: list[Finding] = []
        last: dict[str, int] = {}
        for topic in names:
            try:
                found += self._topic(topic)
                stats = self.admin.topic_stats(topic)
                last[topic] = max((one.last_ms for one in stats), default=0)
            except NoRouteError:
                create = self.advise("topic", "create", topic)
                found.append(newest.no_route(topic, "", create))
            except WireError:
                continue  # its broker does not answer, which is a finding of its own
        self.report.add(newest.SUBJECT, f"{len(names)} topics have routes and read queues", found)
        times = [
            one
            for topic, last_ms in last.items()
            for one in store_times.examine(
                topic, last_ms, self.now_ms, self.advise("topic", "stats", topic)
            )
        ]
        self.report.add(store_times.SUBJECT, "no message is stored ahead of now", times)

    def _topic(self, topic: str) -> Iterator[Finding]:
        for one in check_topic(self.admin, topic):
            if one.kind in _HIDDEN:
                queues = max(one.queue_ids) + 1
                yield Finding(
                    severity=_HIDDEN[one.kind],
                    subject=newest.SUBJECT,
                    what=f"queues that consumers may not read: {one.kind.value}",
                    where=f"{one.broker}, {topic}, queues {' '.join(map(str, one.queue_ids))}",
                    numbers={"messages": one.messages},
                    meaning="producers send to more queues than are read",
                    command=self.advise("topic", "create", topic, "--queues", queues),
                )
            elif one.kind is Kind.IDLE_MEMBER:
                yield Finding(
                    severity=Severity.NOTE,
                    subject=newest.SUBJECT,
                    what="a member has only queues to which nothing is sent",
                    where=f"{one.broker}, {topic}",
                    meaning=one.text,
                    command=self.advise("topic", "check", topic),
                )

    # --- a key ---

    def _key(self, topic: str, wanted: str) -> None:
        try:
            hits = self.admin.messages_by_key(topic, wanted)
            hits = hits or self.admin.messages_by_unique_id(topic, wanted)
            scanned = self._scan(topic, wanted) if self.asked.scan else None
        except OrbitError:
            return  # no route, or nobody answers: told already
        enabled = [c.get("messageIndexEnable", "true") == "true" for c in self._configs.values()]
        facts = key.KeyFacts(
            topic=topic,
            key=wanted,
            indexed=len(hits),
            scanned=scanned,
            index_enabled=all(enabled),
        )
        again = command("doctor", self.asked.target, "--topic", topic, "--key", wanted, "--scan")
        stats = self.advise("topic", "stats", topic)
        stores = [config.get("storePathRootDir", "") for config in self._configs.values()]
        rebuild = command("store", "query", *stores[:1], "--topic", topic, "--key", wanted)
        advice = key.KeyAdvice(scan=stats if self.asked.scan else again, rebuild=rebuild)
        self.report.add(key.SUBJECT, key.summary(facts), key.examine(facts, advice))

    def _scan(self, topic: str, wanted: str) -> int:
        """Read all messages of a topic, and count those that have the key."""
        return sum(
            wanted in message.keys or message.message_id == wanted
            for one in self.admin.topic_stats(topic)
            for message in self.admin.browse(one.queue, one.min_offset, one.max_offset)
        )


def _disk_uses(runtime: Mapping[str, str], config: Mapping[str, str]) -> list[disk.DiskUse]:
    """Return the disks of log and queues. How fast the log grows says when its own disk is full."""
    log, queues = (
        float(runtime.get(name, 0)) for name in ("commitLogDiskRatio", "consumeQueueDiskRatio")
    )
    total = _log_disk_bytes(runtime, config)
    return [
        disk.DiskUse(
            path="commit log",
            used_per_cent=round(log * 100, 1),
            total_bytes=total,
            used_bytes=round(total * max(log, 0)),
        ),
        disk.DiskUse(path="queues", used_per_cent=round(queues * 100, 1)),
    ]


def _log_disk_bytes(runtime: Mapping[str, str], config: Mapping[str, str]) -> int:
    """Return the size of the disk of the log, 0 if it is not known: a broker tells that of its root."""
    root, log = (config.get(f"storePath{name}", "") for name in ("RootDir", "CommitLog"))
    if "," in log or (log and not PurePath(log).is_relative_to(root)):
        return 0
    return disk.capacity_bytes(runtime.get("commitLogDirCapacity", ""))
