package orbitmq.javastore;

import java.lang.management.ManagementFactory;
import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.PutMessageStatus;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;

/**
 * StoreBench put|recover|query|open DIR key=value...: times RocketMQ's store; prints one JSON row.
 *
 * <pre>
 * put      count, warm, chunk, queues, batch: appends until dispatch has caught up; messages are made beforehand
 * recover  count, queues: opens a log without queues and index until both are built again
 * query    count, queues, queries, warm: key queries that must each find one message
 * open     count, queues: opens a store that was closed cleanly
 * </pre>
 *
 * All other settings go to the store as in broker.conf. The process ends without closing the store, unless
 * shutdown=true.
 */
public final class StoreBench {
    private final Map<String, String> settings;
    private final OpenStore opened;
    private final BenchMessages messages;
    private final long count;
    private final Map<String, Object> row;

    private StoreBench(String what, Path root, Map<String, String> settings) throws Exception {
        this.settings = settings;
        count = number("count", 0);
        messages = new BenchMessages((int) number("queues", 16));
        row = Rows.row(what);
        row.put("count", count);
        opened = new OpenStore(root, settings);
    }

    public static void main(String[] arguments) {
        int code = 0;
        try {
            measure(arguments);
        } catch (Throwable error) {
            error.printStackTrace();
            code = 1;
        }
        // The store's threads would keep the process alive.
        Runtime.getRuntime().halt(code);
    }

    private static void measure(String[] arguments) throws Exception {
        Map<String, String> settings = OpenStore.settings(arguments, 2);
        String warmStore = settings.remove("warm_store");
        boolean shutdown = "true".equals(settings.remove("shutdown"));
        try (Rows rows = new Rows()) {
            if (warmStore != null) {
                // Recovery is compiled on a small store first, as put is on its warm-up messages.
                OpenStore small = new OpenStore(Path.of(warmStore), settings);
                require(small.open(), "the warm-up store does not load");
            }
            StoreBench bench = new StoreBench(arguments[0], Path.of(arguments[1]), settings);
            bench.run(arguments[0]);
            if (shutdown) {
                bench.opened.store.shutdown();
            }
            rows.write(bench.row);
        }
    }

    private void run(String what) throws Exception {
        long start = System.nanoTime();
        require(opened.open(), "the store does not load");
        row.put("open_seconds", seconds(System.nanoTime() - start));
        row.put("ready_seconds", ManagementFactory.getRuntimeMXBean().getUptime() / 1e3);
        switch (what) {
            case "put":
                put();
                break;
            case "query":
                requireUnits();
                query((int) number("warm", 20000));
                long time = query((int) number("queries", 20000));
                row.put("seconds", seconds(time));
                row.put("rate", number("queries", 20000) / seconds(time));
                break;
            default:
                requireUnits();
                row.put("log_bytes", opened.store.getMaxPhyOffset() - opened.store.getMinPhyOffset());
        }
    }

    private void put() throws Exception {
        int batch = (int) number("batch", 1);
        long warm = number("warm", 0);
        long chunk = number("chunk", 50000);
        long time = 0;
        for (long first = 0; first < warm + count; first += chunk) {
            long last = Math.min(first + chunk, warm + count);
            long spent = batch > 1 ? putBatches(first, last, batch) : putOneByOne(first, last);
            // The first chunks only wake up the compiler; they must end at a chunk's border.
            time += first >= warm ? spent : 0;
        }
        requireUnits(warm + count);
        row.put("seconds", seconds(time));
        row.put("rate", count / seconds(time));
    }

    private long putOneByOne(long first, long last) throws Exception {
        MessageExtBrokerInner[] made = new MessageExtBrokerInner[(int) (last - first)];
        for (long i = first; i < last; i++) {
            made[(int) (i - first)] = messages.message(i);
        }
        long start = System.nanoTime();
        for (MessageExtBrokerInner message : made) {
            require(opened.store.putMessage(message));
        }
        opened.waitDispatched();
        return System.nanoTime() - start;
    }

    private long putBatches(long first, long last, int size) throws Exception {
        MessageExtBatch[] made = new MessageExtBatch[(int) ((last - first) / size)];
        for (int b = 0; b < made.length; b++) {
            made[b] = messages.batch(first + (long) b * size, size);
        }
        long start = System.nanoTime();
        for (MessageExtBatch batch : made) {
            require(opened.store.putMessages(batch));
        }
        opened.waitDispatched();
        return System.nanoTime() - start;
    }

    private long query(int queries) {
        // A stride that shares no factor with the usual counts visits the keys in a scattered order.
        long stride = 7_368_787L;
        long start = System.nanoTime();
        for (long j = 0; j < queries; j++) {
            long i = (j * stride + 1) % count;
            QueryMessageResult found = opened.store.queryMessage(messages.topic(i), BenchMessages.key(i), 32, 0,
                Long.MAX_VALUE);
            int hits = found.getMessageBufferList().size();
            found.release();
            // A store compares hashes only: among millions of keys a few have another's.
            require(hits >= 1 && hits <= 3, "query of " + BenchMessages.key(i) + " found " + hits);
        }
        return System.nanoTime() - start;
    }

    private void requireUnits() {
        requireUnits(count);
    }

    private void requireUnits(long expected) {
        long units = 0;
        for (ConcurrentMap<Integer, ConsumeQueueInterface> queues : opened.store.getConsumeQueueTable().values()) {
            for (ConsumeQueueInterface queue : queues.values()) {
                units += queue.getMaxOffsetInQueue() - queue.getMinOffsetInQueue();
            }
        }
        require(units == expected, "expected " + expected + " units, found " + units);
    }

    private static void require(PutMessageResult result) {
        require(result.getPutMessageStatus() == PutMessageStatus.PUT_OK, "put: " + result.getPutMessageStatus());
    }

    private static void require(boolean condition, String what) {
        if (!condition) {
            throw new IllegalStateException(what);
        }
    }

    private long number(String name, long otherwise) {
        return Long.parseLong(settings.getOrDefault(name, Long.toString(otherwise)));
    }

    private static double seconds(long nanoseconds) {
        return nanoseconds / 1e9;
    }
}
