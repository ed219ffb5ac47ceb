"""Put a store together whose dispatch a Spark job does (`spark_dispatch/recover.py` has the rule)."""

import logging
from dataclasses import replace

from orbitmq.errors import StoreError
from orbitmq.files.followed import FollowedFiles
from orbitmq.files.lock import StoreLock
from orbitmq.files.positioned import FileCache
from orbitmq.format.columns import ScanOptions
from orbitmq.format.handover import DispatchedOffset
from orbitmq.store.assembly import (
    Dependencies,
    Opening,
    StoreParts,
    closed_on_error,
    follow_the_log,
)
from orbitmq.store.config import StoreConfig
from orbitmq.store.dispatch import Dispatcher
from orbitmq.store.index.files import IndexFiles
from orbitmq.store.log.commit_log import CommitLog
from orbitmq.store.recovery.adopt import NotTrustedError, RecoveryReport, recover_store
from orbitmq.store.spark_dispatch.follow import DispatchFollower, FollowingDispatcher
from orbitmq.store.spark_dispatch.followed_index import FollowedIndex
from orbitmq.store.spark_dispatch.handover import DispatchSettings, Handover
from orbitmq.store.spark_dispatch.recover import Followed, recover_followed

_log = logging.getLogger(__name__)


def terms_settings(config: StoreConfig) -> dict[str, str]:
    """Return a store's settings for a process that may run in another directory."""
    settings = config.properties()
    del settings["storePathRootDir"], settings["storePathCommitLog"]
    for key, paths in (
        ("storePathCommitLog", config.commit_log_paths),
        ("readOnlyCommitLogStorePaths", config.read_only_commit_log_paths),
    ):
        if paths:
            settings[key] = ",".join(str(path.absolute()) for path in paths)
    return settings


class FollowedOpening(Opening):
    """One opening. The job does not write meanwhile: `Handover.writing`."""

    def __init__(self, deps: Dependencies, lock: StoreLock, handover: Handover) -> None:
        super().__init__(deps, lock, FollowedFiles(deps.disk))
        self._handover = handover

    def run(self) -> StoreParts:
        with self._handover.writing(), closed_on_error(self._files):
            followed, done = self._recover()
            epoch = self._handover.new_epoch()
            terms = DispatchSettings(epoch, terms_settings(self._config))
            done = replace(done, epoch=epoch)
            log = self._log(followed.ahead, followed.report)
            dispatch = self._follower(log, followed.dispatcher, done, terms)
            parts = self._joined(log, followed.dispatcher, dispatch, followed.report)
            # The terms last: before, no job acts on the rest.
            self._handover.save_dispatched_offset(done)
            dispatch.look()
            self._handover.save_settings(terms)
            return parts

    def _recover(self) -> tuple[Followed, DispatchedOffset]:
        def make_dispatcher(index_in_sight: bool) -> Dispatcher:
            deps = self._layout, self._files, self._disk, self._kernels, self._clock
            index = (
                FollowedIndex(*deps, enabled=self._config.index_enabled)
                if index_in_sight
                else IndexFiles(*deps, enabled=False)
            )
            following = FollowingDispatcher
            return self._dispatcher(self._files, index=index, make=following)

        options = self._recover_options()
        try:
            done = self._job_done()
            loaded = self._checkpoint.load(), self._snapshot.load()
            return recover_followed(options, make_dispatcher, *loaded, done), done
        except NotTrustedError as error:
            _log.info("%s: dispatched here to the end of the log: %s", self._layout.root, error)
        report, done = self._recover_whole()
        options = replace(self._recover_options(), kernels=self._kernels)
        try:
            loaded = self._checkpoint.load(), self._snapshot.load()
            followed = recover_followed(options, make_dispatcher, *loaded, done)
        except NotTrustedError as error:
            step = "Run `orbitmq store check`, or start it with dispatch = live."
            raise StoreError(self._layout.root, str(error), step) from error
        generation = followed.report.generation
        return replace(followed, report=replace(report, generation=generation)), done

    def _job_done(self) -> DispatchedOffset:
        terms, done = self._handover.settings(), self._handover.dispatched_offset()
        if terms is None or done is None:
            raise NotTrustedError("no job has dispatched for this store yet")
        if done.epoch != terms.epoch:
            raise NotTrustedError("the job did not work for the last opening of this store")
        return done

    def _recover_whole(self) -> tuple[RecoveryReport, DispatchedOffset]:
        """Recover as a store that dispatches itself; return that and where queues and index then are."""
        with FileCache(self._disk) as files:
            dispatcher = self._dispatcher(files)
            options = self._recover_options()
            loaded = self._checkpoint.load(), self._snapshot.load()
            report = recover_store(options, dispatcher, *loaded)
            flusher = self._queue_flusher(
                dispatcher, report, lambda: report.end_offset, lambda: report.end_offset
            )
            if report.min_offset > 0:
                follow_the_log(dispatcher, report.min_offset)
            self._checkpoint.update(physic_ms=max(0, report.last_store_ms))
            flusher.flush_all()
            dispatcher.index.close()
        headers = dispatcher.index.headers()
        return report, DispatchedOffset(0, report.end_offset, *(headers[-1] if headers else ()))

    def _follower(
        self,
        log: CommitLog,
        dispatcher: Dispatcher,
        done: DispatchedOffset,
        terms: DispatchSettings,
    ) -> DispatchFollower:
        assert isinstance(dispatcher, FollowingDispatcher)
        # Only from here on: what recovery read was seen before the last stop.
        dispatcher.extra.extend(self._deps.dispatchers)
        return DispatchFollower(
            log,
            dispatcher,
            self._kernels,
            done=done,
            terms=terms,
            handover=self._handover,
            options=ScanOptions(delay_ms=self._config.delay_ms),
            clock=self._clock,
            on_error=self._give_up,
        )
