"""The way of the kernels: frames in, records and answers out, without an object for each send.

It is for ordinary messages of topics and queues that have been sent to before, and for such messages that
wait for a time. At the first send that is
anything else it ends, and what follows goes the general way (`processors/send.py`).
"""

import logging
import threading
from typing import Final

from orbitmq.broker.context import BrokerContext
from orbitmq.broker.sends.answers import SendAnswers
from orbitmq.broker.sends.flush_wait import FlushWait
from orbitmq.broker.sends.rules import CLEANUP_POLICY, COMPACTION, MULTI_TAG
from orbitmq.message import NO_SEND_TOPICS, AppendStatus, QueueType
from orbitmq.net.connection import Connection
from orbitmq.wire.bodies.topic_config import TopicConfig
from orbitmq.wire.command import Encoding
from orbitmq.wire.fast import SendKernels, SendRun, kernels

logger = logging.getLogger(__name__)

_TOPICS_MAX: Final = 100_000  # remembered ones; forgotten when there are more


class FastWay:
    """Appends and answers runs of ordinary sends. Belongs to the event loop's thread."""

    def __init__(self, context: BrokerContext, flush_wait: FlushWait) -> None:
        self._context, self._config, self._store = context, context.config, context.store
        self._flush_wait = flush_wait
        self._sync, self._replicas = flush_wait.waits, context.replicas
        # Topics whose messages may go this way: config and number of queues.
        self._topics: dict[str, tuple[TopicConfig, int]] = {}
        self._kernels: SendKernels | None = None
        self._loading: threading.Thread | None = None
        self._run: SendRun | None = None
        self._suffix = b""
        self._answers: SendAnswers

    def use(self, chosen: SendKernels) -> None:
        """Use these kernels; without this, the compiled ones as soon as the store has its own."""
        self._kernels, self._run = chosen, None

    def use_texts(self, suffix: bytes, answers: SendAnswers) -> None:
        """Follow changed settings: what the broker adds to properties, its answers, its limits."""
        self._suffix, self._answers, self._run = suffix, answers, None

    def remember(self, topic: str) -> None:
        """Let the next message of this topic go this way, if it may."""
        topics = self._context.topics
        config, known = topics.get(topic), self._topics.get(topic)
        if (
            config is None
            or (known is not None and known[0] is config)
            or not config.is_writable
            or topic.startswith("%")
            or topic in NO_SEND_TOPICS  # a half message lies there, and nobody may send there
            or config.topic_filter_type == MULTI_TAG
            or config.attributes.get(CLEANUP_POLICY) == COMPACTION
            or topics.queue_type(topic) is QueueType.BATCH
            or topics.memory_problem(topic) is not None
        ):
            return
        if len(self._topics) >= _TOPICS_MAX:
            self._topics.clear()
        self._topics[topic] = config, max(config.read_queue_nums, config.write_queue_nums)

    def take(self, connection: Connection, data: bytes) -> int:
        """Append and answer the ordinary sends that these bytes begin with; return their length."""
        run = self._run or self._make_run()
        if run is None or not self._config.writable or self._config.accept_sends_from_ms:
            return 0
        if self._replicas is not None and self._replicas.refusal:
            return 0
        taken = 0
        while taken < len(data) and run.find(data, taken) and self._may_take(run):
            host = connection.peer_host
            if not self._store.append_sends_nowait(run, host, flush=self._flush_wait.store_flushes):
                break
            taken = run.end
            for queue in run.queues:
                self._context.statistics.on_put(queue.topic, queue.messages, queue.record_bytes)
            connection.encoding = Encoding.JSON
            connection.language, connection.version = run.language, run.version
            self._answer(connection, run)
        run.release()
        return taken

    def _make_run(self) -> "SendRun | None":
        if self._kernels is None:
            self._load_kernels()
            return None
        self._run = SendRun(
            self._kernels,
            frame_bytes_max=self._config.net.frame_bytes_max,
            body_bytes_max=self._config.store.message_bytes_max,
        )
        self._run.use_texts(self._suffix, self._answers.parts)
        return self._run

    def _load_kernels(self) -> None:
        """Load the compiled kernels in a thread, if the store uses such: then the compiler is there."""
        if self._loading is None and self._store.kernels.name == "compiled":
            self._loading = threading.Thread(target=self._load, name="orbitmq-sends", daemon=True)
            self._loading.start()

    def _load(self) -> None:
        try:
            self._kernels = kernels.compiled()
        except Exception:
            logger.exception("compiled kernels of sends: not loaded, all sends go the general way")

    def _may_take(self, run: SendRun) -> bool:
        """Tell whether the topics and queues of a run are known, and nothing about them is special."""
        for queue in run.queues:
            known = self._topics.get(queue.topic)
            if (
                known is None
                or known[0] is not self._context.topics.get(queue.topic)
                or queue.queue_id >= known[1]
            ):
                return False
        return True

    def _answer(self, connection: Connection, run: SendRun) -> None:
        answers = run.answers()
        # A run goes to the log or to a topic in memory, which no disk is waited for.
        if not self._sync or self._context.topics.is_memory(run.queues[0].topic):
            if answers:
                connection.send_frame(answers)
            return
        maker = self._answers

        def done(status: AppendStatus) -> None:
            if status is AppendStatus.PUT_OK:
                connection.send_frame(answers)
                return
            for command in maker.with_status(answers, status):
                connection.send(command)

        if answers:
            self._flush_wait.add(self._store.max_log_offset, done)
        self._flush_wait.sync_soon()
