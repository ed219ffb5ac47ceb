"""The doctor on a store directory: facts from its files alone, also beside a running broker."""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from orbitmq.clock import Clock, SystemClock
from orbitmq.doctor import disk, index, key, newest, offsets, soundness, store_times
from orbitmq.doctor.asked import Asked
from orbitmq.doctor.deletion import losses, next_deletion, places_of
from orbitmq.doctor.index_files import first_entry, measure_files
from orbitmq.doctor.log_tail import LogTail, Missing, read_tail
from orbitmq.doctor.queue_files import QueueFacts, iter_queues
from orbitmq.doctor.report import Finding, Report, command
from orbitmq.errors import StoreError
from orbitmq.files.state_file import read_state
from orbitmq.format.index_file import index_keys, key_hash
from orbitmq.message import LMQ_PREFIX, SYSTEM_TOPICS
from orbitmq.store.clean import disk_ratio
from orbitmq.store.offline.query import by_index, by_scan
from orbitmq.store.offline.reader import OfflineStore, Selection, first_store_ms
from orbitmq.store.spark_dispatch.handover import dispatch_words
from orbitmq.store.verify.check import check_store
from orbitmq.store.verify.facts import NEVER, look_at
from orbitmq.store.verify.timer import check_timer
from orbitmq.store.verify.verification import check_state_files
from orbitmq.units import MINUTE_MS

LIVE_GRACE_MS: Final = 2 * MINUTE_MS
"""A running broker writes queues and index out at least once a minute."""

Progress = Callable[[int, int], None]


class DirectoryDoctor:
    """One look at one store. Not thread-safe."""

    def __init__(
        self,
        asked: Asked,
        settings: Mapping[str, str],
        *,
        clock: Clock | None = None,
        progress: Progress = lambda done, total: None,
    ) -> None:
        self.asked, self.settings, self._progress = asked, settings, progress
        self.root = Path(asked.target)
        self.now_ms = (clock or SystemClock()).now_ms()
        self.report = Report(asked.target)
        self.facts, self._findings = look_at(self.root, settings)
        self.store = OfflineStore(self.root, settings, progress=progress)
        self.queues = {(q.topic, q.queue_id): q for q in iter_queues(self.store)}
        self.chains, self.index_end = measure_files(
            self.facts, self._findings, thorough=asked.thorough
        )
        self.tail = self._read_tail()

    def run(self) -> Report:
        """Look at everything. StoreError: this is no store, or one that cannot be read."""
        self._files()
        self._newest()
        self._offsets()
        self._index()
        self._disk()
        self._clock()
        return self.report

    # --- commands ---

    def _of_store(self, *words: object) -> str:
        config = ("--config", self.asked.config) if self.asked.config else ()
        return command("store", words[0], self.root, *words[1:], *config)

    def _again(self, *words: object) -> str:
        config = ("--config", self.asked.config) if self.asked.config else ()
        return command("doctor", self.root, *words, *config)

    @property
    def _broker(self) -> str:
        """Where the broker of this store listens, as far as its settings tell."""
        host = self.settings.get("brokerIP1", "127.0.0.1")
        return f"{host}:{self.settings.get('listenPort', '10911')}"

    # --- subjects ---

    def _files(self) -> None:
        check = self._of_store("check")
        found = list(self._findings)
        seen = f"{len(self.store.log.segments)} segments, headers, state files and the last records"
        if self.asked.thorough:
            found = list(check_store(self.root, self.settings, progress=self._progress).findings)
            seen = "the whole log against queues and index"
        repair = check if self.facts.live else self._of_store("repair")
        findings = list(soundness.examine(found, check, repair))
        if self.facts.abort and not self.facts.live:
            since = self.facts.layout.abort.stat().st_mtime_ns // 1_000_000
            findings.append(soundness.not_closed(str(self.root), since, check))
        self.report.add(soundness.SUBJECT, seen, findings)

    def _newest(self) -> None:
        catch_up = self._catch_up(self.tail.undispatched)
        findings = [*newest.examine_lag(self._lag(), catch_up), *self._topics()]
        topics = len({topic for topic, _ in self.queues})
        seen = f"{topics} topics with {len(self.queues)} queues, all of the log dispatched"
        self.report.add(newest.SUBJECT, seen, findings)

    def _lag(self) -> newest.DispatchLag:
        missing = self.tail.undispatched
        awaited = not missing.records or self._is_recovered
        behind = 0 if awaited else self.tail.end - missing.first_offset
        return newest.DispatchLag(
            where=str(self.root),
            behind_bytes=behind,
            standing=True,
            messages=missing.records,
            since_ms=missing.first_ms,
            by_spark=self._waits_for_job(missing),
        )

    @property
    def _is_recovered(self) -> bool:
        """Whether the next start dispatches what a killed broker did not."""
        facts = self.facts
        return facts.abort and not facts.live and facts.job_offset is None

    def _waits_for_job(self, missing: Missing) -> bool:
        """Tell whether a Spark job gets there in its own time; what it has done it does not do again."""
        job_offset = self.facts.job_offset
        return job_offset is not None and missing.first_offset >= job_offset

    def _catch_up(self, missing: Missing) -> str:
        """Return the command that brings these records into queues and index."""
        if self._waits_for_job(missing):
            return command(*dispatch_words(self.root, live=self.facts.live))
        return self._of_store("check") if self.facts.live else self._of_store("rebuild")

    def _topics(self) -> Iterator[Finding]:
        known = _topic_table(self.store)
        if not known:
            return  # a store without a broker
        for topic in sorted({topic for topic, _ in self.queues}):
            held = [q for q in self.queues.values() if q.topic == topic and q.messages > 0]
            if not held or not self.asked.wants_topic(topic) or topic.startswith(LMQ_PREFIX):
                continue
            count = max(queue.queue_id for queue in held) + 1
            if topic not in known:
                if topic not in SYSTEM_TOPICS:
                    repair = command("topic", "create", topic, "--queues", count)
                    yield newest.unknown_topic(topic, sum(q.messages for q in held), repair)
                continue
            yield from self._hidden(topic, known[topic], held)

    def _hidden(
        self, topic: str, config: dict[str, object], held: list[QueueFacts]
    ) -> Iterator[Finding]:
        read, write = (_number(config, name) for name in ("readQueueNums", "writeQueueNums"))
        beyond = [queue for queue in held if queue.queue_id >= read]
        if not beyond:
            return
        wanted = max(write, *(queue.queue_id + 1 for queue in beyond))
        hidden = newest.HiddenQueues(
            topic=topic,
            where="",
            read_queues=read,
            queue_ids=sorted(queue.queue_id for queue in beyond),
            messages=sum(queue.messages for queue in beyond),
        )
        yield newest.examine_hidden(hidden, command("topic", "create", topic, "--queues", wanted))

    def _offsets(self) -> None:
        places = [
            place
            for place in places_of(self.store)
            if self.asked.wants_group(place.group) and self.asked.wants_topic(place.topic)
        ]
        judged = [
            offsets.GroupOffset(
                group=place.group,
                topic=place.topic,
                queue=f"queue {place.queue_id}",
                queue_id=place.queue_id,
                offset=place.offset,
                min_offset=queue.min_offset if queue else 0,
                max_offset=self._max_offset(place.topic, place.queue_id),
            )
            for place in places
            for queue in [self.queues.get((place.topic, place.queue_id))]
        ]
        groups = len({place.group for place in places})
        seen = f"{len(places)} offsets of {groups} groups"
        self.report.add(offsets.SUBJECT, seen, offsets.examine(judged, command))

    def _max_offset(self, topic: str, queue_id: int) -> int:
        queue = self.queues.get((topic, queue_id))
        by_log = self.tail.next_offsets.get((topic, queue_id), 0)
        return max(queue.max_offset if queue else 0, by_log)

    def _index(self) -> None:
        missing, enabled = self.tail.unindexed, self.facts.config.index_enabled
        unindexed = None
        if missing.records and not (self._is_recovered and enabled):
            unindexed = index.Unindexed(
                records=missing.records,
                bytes_behind=self.tail.end - missing.first_offset,
                first_ms=missing.first_ms,
                first_log_offset=missing.first_offset,
                enabled=enabled,
            )
        rebuild = self._catch_up(missing)
        advice = index.IndexAdvice(
            more_slots=self._of_store("rebuild"),
            rebuild=rebuild,
            look_up=self._look_up,
            show_keys=self._of_store("dump", "--from", f"offset:{missing.first_offset}"),
        )
        found = index.examine(self.chains, unindexed, advice)
        self.report.add(index.SUBJECT, index.summary(self.chains), found)
        if self.asked.key is not None and self.asked.topic is not None:
            self._key(self.asked.topic, self.asked.key, rebuild)

    def _look_up(self, chains: index.Chains) -> str:
        """Return the command that finds the newest messages of the key with the longest chain."""
        offset = first_entry(chains, self.facts.layout)
        found = self.store.decode_at(offset) if offset is not None else None
        if found is None:
            return self._of_store("check")
        record = found.record
        keys = index_keys(record.unique_key, record.keys, record.sys_flag)
        named = [one for one in keys if key_hash(record.topic, one) == chains.commonest_hash]
        words = "--topic", record.topic, "--key", (named or keys)[0], "--max", 10
        return self._of_store("query", *words)

    def _key(self, topic: str, wanted: str, rebuild: str) -> None:
        selection = Selection(topic=topic)
        hits, chain = by_index(self.store, selection, wanted)
        scanned = len(by_scan(self.store, selection, wanted)) if self.asked.scan else None
        facts = key.KeyFacts(
            topic=topic,
            key=wanted,
            indexed=len(hits),
            walked=chain.walked,
            foreign=chain.walked - len(chain.log_offsets),
            scanned=scanned,
            index_enabled=self.facts.config.index_enabled,
        )
        scan = self._again("--topic", topic, "--key", wanted, "--scan")
        dump = self._of_store("dump", "--topic", topic)
        advice = key.KeyAdvice(scan=dump if self.asked.scan else scan, rebuild=rebuild)
        self.report.add(key.SUBJECT, key.summary(facts), key.examine(facts, advice))

    def _disk(self) -> None:
        facts = self._disk_facts()
        keep_less = max(1, self.facts.config.retention_ms // MINUTE_MS // 60 // 2)
        advice = disk.DiskAdvice(
            command("broker", "config", self._broker, "--set", f"fileReservedTime={keep_less}"),
            lambda group: command("group", "progress", group),
        )
        self.report.add(disk.SUBJECT, disk.summary(facts), disk.examine(facts, advice))

    def _disk_facts(self) -> disk.DiskFacts:
        config, log = self.facts.config, self.store.log
        folders = [*self.facts.layout.commit_log_directories, self.root]
        disks = [_disk_use(path) for path in dict.fromkeys(folders) if path.is_dir()]
        deletion = next_deletion(
            self.store, config, disks, log_end=self.tail.end, now_ms=self.now_ms
        )
        if deletion is not None:
            places = [p for p in places_of(self.store) if self.asked.wants_group(p.group)]
            lost = tuple(losses(self.store, deletion, self.queues, places))
            deletion = disk.NextDeletion(
                at_ms=deletion.at_ms,
                why=deletion.why,
                segments=deletion.segments,
                first=deletion.first,
                losses=lost,
            )
        held = [segment for segment in log.segments if not segment.missing]
        return disk.DiskFacts(
            disks=disks,
            limits=disk.Limits.of(config),
            now_ms=self.now_ms,
            log_bytes=self.tail.end - log.min_offset,
            first_ms=(first_store_ms(held[0]) or 0) if held else 0,
            last_ms=self.tail.last_ms,
            deletion=deletion,
        )

    def _clock(self) -> None:
        dump = self._of_store("dump", "--from", "now")
        where = str(self.root)
        found = store_times.examine(where, self.tail.last_ms, self.now_ms, dump)
        self.report.add(store_times.SUBJECT, "no message is stored ahead of now", found)

    # --- facts ---

    def _read_tail(self) -> LogTail:
        ends = [queue.end_log_offset for queue in self.queues.values()]
        queues_from = min(self.facts.queues_from, max(ends, default=0))
        if self.facts.queues_from == NEVER:
            queues_from = max(ends, default=0)
        tail = LogTail(
            {place: queue.max_offset for place, queue in self.queues.items()},
            queues_from,
            self.index_end,
            self.now_ms - LIVE_GRACE_MS if self.facts.live else NEVER,
        )
        read_tail(self.store, self.facts, tail, self._findings)
        check_timer(self.facts, self.store.log, tail.end, self._findings)
        check_state_files(self.facts.layout, self._findings)
        return tail


def _topic_table(store: OfflineStore) -> dict[str, dict[str, object]]:
    try:
        table = read_state(store.layout.config("topics.json")).get("topicConfigTable")
    except StoreError:
        return {}
    if not isinstance(table, dict):
        return {}
    return {topic: config for topic, config in table.items() if isinstance(config, dict)}


def _number(config: Mapping[str, object], name: str) -> int:
    try:
        return msgspec.convert(config.get(name, 0), int)
    except msgspec.ValidationError:
        return 0


def _disk_use(path: Path) -> disk.DiskUse:
    usage = os.statvfs(path)
    total = (usage.f_blocks - usage.f_bfree + usage.f_bavail) * usage.f_frsize
    return disk.DiskUse(
        path=str(path),
        used_per_cent=round(disk_ratio(path) * 100, 1),
        total_bytes=total,
        used_bytes=(usage.f_blocks - usage.f_bfree) * usage.f_frsize,
    )
