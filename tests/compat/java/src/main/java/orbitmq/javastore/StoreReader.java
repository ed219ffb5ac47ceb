package orbitmq.javastore;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.rocketmq.common.attribute.CQType;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.ConsumeQueueExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;
import org.apache.rocketmq.store.queue.CqUnit;
import org.apache.rocketmq.store.queue.ReferredIterator;

/**
 * StoreReader: opens one store after the other as a broker would and tells everything it finds, as JSON lines.
 *
 * <p>Each line of standard input names a store: DIR, then key=value..., separated by tabs. Its rows:
 * <pre>
 * opened   load, and the log's ends before the services start and after dispatch has caught up
 * record   every record of the log, walked with RocketMQ's own check (CRC included), fields decoded
 * scan     where that walk ended
 * queue    ends and units of every queue
 * get      every message of a queue, in order, as getMessage returned it: [queue offset, log offset, SHA-256]
 * query    for every (topic, key) that occurs in a record: the log offsets that a key query returns
 * closed   the clean shutdown has ended
 * failed   the program met an exception; end has its stack
 * end      the last row: what the store's threads wrote to their error log
 * </pre>
 *
 * Opening changes the directory (recovery, abort, checkpoint). A clean shutdown takes RocketMQ about three
 * seconds; with shutdown=false nobody waits for it.
 */
public final class StoreReader {
    private final OpenStore opened;
    private final DefaultMessageStore store;
    private final Rows rows;
    private final Set<List<String>> keys = new LinkedHashSet<>();

    private StoreReader(OpenStore opened, Rows rows) {
        this.opened = opened;
        this.store = opened.store;
        this.rows = rows;
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Rows rows = new Rows();
        ErrorsByGroup errors = ErrorsByGroup.install();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t");
            // The threads that a store starts belong to the group of the thread that opens it.
            ThreadGroup group = new ThreadGroup(words[0]);
            Thread reader = new Thread(group, () -> read(words, rows));
            reader.start();
            reader.join();
            Map<String, Object> end = Rows.row("end");
            end.put("errors", errors.of(group));
            rows.write(end);
            rows.flush();
        }
        // Some of the stores' threads are not daemons and outlive even a shutdown.
        Runtime.getRuntime().halt(0);
    }

    private static void read(String[] words, Rows rows) {
        try {
            Map<String, String> settings = OpenStore.settings(words, 1);
            boolean shutdown = !"false".equals(settings.remove("shutdown"));
            OpenStore opened = new OpenStore(Path.of(words[0]), settings);
            opened.store.getDispatcherList().addFirst(new IndexNames(opened.config.getMaxIndexNum()));
            new StoreReader(opened, rows).tellAll(shutdown);
        } catch (Throwable error) {
            error.printStackTrace();
            rows.write(Rows.row("failed"));
        }
    }

    private void tellAll(boolean shutdown) throws Exception {
        if (!tellOpened()) {
            return;
        }
        tellRecords();
        for (Map.Entry<String, TreeMap<Integer, ConsumeQueueInterface>> topic : queues().entrySet()) {
            for (Map.Entry<Integer, ConsumeQueueInterface> queue : topic.getValue().entrySet()) {
                tellQueue(topic.getKey(), queue.getKey(), queue.getValue());
                tellMessages(topic.getKey(), queue.getKey(), queue.getValue());
            }
        }
        for (List<String> key : keys) {
            tellQuery(key.get(0), key.get(1));
        }
        if (shutdown) {
            store.shutdown();
            rows.write(Rows.row("closed"));
        } else {
            new Thread(store::shutdown).start();
        }
    }

    private boolean tellOpened() throws Exception {
        Map<String, Object> row = Rows.row("opened");
        boolean loaded = store.load();
        row.put("load", loaded);
        if (loaded) {
            row.put("max_log_offset_loaded", store.getMaxPhyOffset());
            store.start();
            opened.waitDispatched();
            row.put("min_log_offset", store.getMinPhyOffset());
            row.put("max_log_offset", store.getMaxPhyOffset());
        }
        rows.write(row);
        return loaded;
    }

    private void tellRecords() throws Exception {
        long offset = store.getMinPhyOffset();
        long end = store.getMaxPhyOffset();
        int count = 0;
        boolean valid = true;
        while (valid && offset < end) {
            SelectMappedBufferResult rest = store.getCommitLogData(offset);
            if (rest == null) {
                break;
            }
            try {
                ByteBuffer buffer = rest.getByteBuffer();
                while (offset < end) {
                    int position = buffer.position();
                    DispatchRequest found = store.checkMessageAndReturnSize(buffer, true, false, true);
                    if (!found.isSuccess()) {
                        valid = false;
                        break;
                    }
                    if (found.getMsgSize() == 0) {
                        offset = nextSegment(offset);
                        break;
                    }
                    tellRecord(offset, slice(buffer, position, found.getMsgSize()), found);
                    offset += found.getMsgSize();
                    count++;
                    buffer.position(position + found.getMsgSize());
                }
            } finally {
                rest.release();
            }
        }
        Map<String, Object> row = Rows.row("scan");
        row.put("end", offset);
        row.put("valid", valid);
        row.put("record_count", count);
        rows.write(row);
    }

    private long nextSegment(long offset) {
        long bytes = opened.config.getMappedFileSizeCommitLog();
        return offset - offset % bytes + bytes;
    }

    private static ByteBuffer slice(ByteBuffer buffer, int position, int size) {
        ByteBuffer view = buffer.duplicate();
        view.position(position).limit(position + size);
        return view.slice();
    }

    private void tellRecord(long offset, ByteBuffer bytes, DispatchRequest found) throws Exception {
        MessageExt message = MessageDecoder.decode(bytes.duplicate(), true, false, false);
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        Map<String, Object> row = Rows.row("record");
        row.put("log_offset", offset);
        row.put("size", found.getMsgSize());
        row.put("stored_log_offset", message.getCommitLogOffset());
        row.put("topic", message.getTopic());
        row.put("queue_id", message.getQueueId());
        row.put("queue_offset", message.getQueueOffset());
        row.put("flag", message.getFlag());
        row.put("sys_flag", message.getSysFlag());
        row.put("born_ms", message.getBornTimestamp());
        row.put("born_host", host(message.getBornHost()));
        row.put("store_ms", message.getStoreTimestamp());
        row.put("store_host", host(message.getStoreHost()));
        row.put("reconsume_times", message.getReconsumeTimes());
        row.put("prepared_offset", message.getPreparedTransactionOffset());
        row.put("body_length", body.length);
        row.put("body_crc", message.getBodyCRC());
        row.put("body_sha256", sha256(ByteBuffer.wrap(body)));
        row.put("properties", new TreeMap<>(message.getProperties()));
        row.put("tags_code", found.getTagsCode());
        row.put("batch_count", (int) found.getBatchSize());
        row.put("record_sha256", sha256(bytes.duplicate()));
        rows.write(row);
        collectKeys(message);
    }

    private void collectKeys(MessageExt message) {
        String unique = message.getProperty("UNIQ_KEY");
        if (unique != null) {
            keys.add(Arrays.asList(message.getTopic(), unique));
        }
        String several = message.getKeys();
        for (String key : several == null ? new String[0] : several.split(" ")) {
            if (!key.isEmpty()) {
                keys.add(Arrays.asList(message.getTopic(), key));
            }
        }
    }

    private TreeMap<String, TreeMap<Integer, ConsumeQueueInterface>> queues() {
        TreeMap<String, TreeMap<Integer, ConsumeQueueInterface>> sorted = new TreeMap<>();
        store.getConsumeQueueTable().forEach((topic, queues) -> sorted.put(topic, new TreeMap<>(queues)));
        return sorted;
    }

    private void tellQueue(String topic, int queueId, ConsumeQueueInterface queue) {
        Map<String, Object> row = Rows.row("queue");
        row.put("topic", topic);
        row.put("queue_id", queueId);
        row.put("kind", queue.getCQType().name());
        row.put("min_offset", queue.getMinOffsetInQueue());
        row.put("max_offset", queue.getMaxOffsetInQueue());
        row.put("end_log_offset", queue.getMaxPhysicOffset());
        row.put("units", units(queue));
        rows.write(row);
    }

    private List<Object> units(ConsumeQueueInterface queue) {
        List<Object> units = new ArrayList<>();
        long end = queue.getMaxOffsetInQueue();
        long next = queue.getMinOffsetInQueue();
        while (0 <= next && next < end) {
            long before = next;
            // An iterator ends with the file it began in, hence the outer loop.
            ReferredIterator<CqUnit> iterator = queue.iterateFrom(next);
            if (iterator == null) {
                break;
            }
            try {
                while (iterator.hasNext() && next < end) {
                    CqUnit unit = iterator.next();
                    units.add(unit(queue.getCQType(), unit));
                    next = unit.getQueueOffset() + Math.max(1, unit.getBatchNum());
                }
            } finally {
                iterator.release();
            }
            if (next == before) {
                break;
            }
        }
        return units;
    }

    private List<Object> unit(CQType kind, CqUnit unit) {
        List<Object> fields = new ArrayList<>(Arrays.asList(unit.getPos(), unit.getSize(), unit.getTagsCode()));
        if (kind == CQType.BatchCQ) {
            Collections.addAll(fields, unit.getQueueOffset(), (int) unit.getBatchNum(), unit.getCompactedOffset());
        } else if (opened.config.isEnableConsumeQueueExt()) {
            ConsumeQueueExt.CqExtUnit ext = unit.getCqExtUnit();
            fields.add(ext == null ? null : Arrays.asList(ext.getTagsCode(), ext.getMsgStoreTime(),
                ext.getFilterBitMap() == null ? null : hex(ext.getFilterBitMap())));
        }
        return fields;
    }

    private void tellMessages(String topic, int queueId, ConsumeQueueInterface queue) throws Exception {
        List<Object> messages = new ArrayList<>();
        long end = queue.getMaxOffsetInQueue();
        long next = queue.getMinOffsetInQueue();
        String status = null;
        while (0 <= next && next < end) {
            GetMessageResult found = store.getMessage("reader", topic, queueId, next, 32, null);
            status = found.getStatus().name();
            for (int i = 0; i < found.getMessageBufferList().size(); i++) {
                ByteBuffer bytes = found.getMessageBufferList().get(i);
                messages.add(Arrays.asList(found.getMessageQueueOffset().get(i), bytes.getLong(bytes.position() + 28),
                    sha256(bytes.duplicate())));
            }
            found.release();
            if (found.getNextBeginOffset() <= next) {
                break;
            }
            next = found.getNextBeginOffset();
        }
        Map<String, Object> row = Rows.row("get");
        row.put("topic", topic);
        row.put("queue_id", queueId);
        row.put("last_status", status);
        row.put("next_offset", next);
        row.put("messages", messages);
        rows.write(row);
    }

    private void tellQuery(String topic, String key) {
        QueryMessageResult found = store.queryMessage(topic, key, 64, 0, Long.MAX_VALUE);
        List<Long> offsets = new ArrayList<>();
        for (ByteBuffer bytes : found.getMessageBufferList()) {
            offsets.add(bytes.getLong(bytes.position() + 28));
        }
        found.release();
        Map<String, Object> row = Rows.row("query");
        row.put("topic", topic);
        row.put("key", key);
        row.put("log_offsets", offsets);
        rows.write(row);
    }

    private static String host(SocketAddress address) {
        InetSocketAddress internet = (InetSocketAddress) address;
        return internet.getAddress().getHostAddress() + "|" + internet.getPort();
    }

    private static String sha256(ByteBuffer bytes) throws Exception {
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        digest.update(bytes);
        return hex(digest.digest());
    }

    private static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder(2 * bytes.length);
        for (byte value : bytes) {
            text.append(Character.forDigit(value >> 4 & 15, 16)).append(Character.forDigit(value & 15, 16));
        }
        return text.toString();
    }
}
