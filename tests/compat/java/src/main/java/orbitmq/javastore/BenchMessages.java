package orbitmq.javastore;

import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;

/** The messages of the benchmark: number i is the same here and in bench/harness.py. */
final class BenchMessages {
    static final int QUEUES_PER_TOPIC = 8;
    private static final int BODY_BYTES = 1024;
    private static final int BODY_COUNT = 64;
    private static final SocketAddress HOST = new InetSocketAddress("127.0.0.1", 10911);

    private final byte[][] bodies = new byte[BODY_COUNT][BODY_BYTES];
    private final int queueCount;

    BenchMessages(int queueCount) {
        this.queueCount = queueCount;
        for (int body = 0; body < BODY_COUNT; body++) {
            for (int j = 0; j < BODY_BYTES; j++) {
                bodies[body][j] = (byte) (body * 131 + j * 31 + j * j);
            }
        }
    }

    static String key(long i) {
        return "key" + i;
    }

    String topic(long i) {
        return String.format("Bench%05d", i % queueCount / QUEUES_PER_TOPIC);
    }

    private int queueId(long i) {
        return (int) (i % queueCount % QUEUES_PER_TOPIC);
    }

    private static Map<String, String> properties(long i) {
        Map<String, String> properties = new HashMap<>();
        properties.put("KEYS", key(i));
        properties.put("TAGS", "Tag" + i % 4);
        properties.put("UNIQ_KEY", String.format("%032X", i));
        return properties;
    }

    MessageExtBrokerInner message(long i) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        address(message, i);
        message.setBody(bodies[(int) (i % BODY_COUNT)]);
        MessageAccessor.setProperties(message, properties(i));
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        message.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(message.getTags()));
        return message;
    }

    /** One request of a producer: messages i, i+1, ... as a batch, which RocketMQ puts into one queue. */
    MessageExtBatch batch(long i, int count) {
        List<Message> messages = new ArrayList<>();
        for (int j = 0; j < count; j++) {
            Message message = new Message();
            message.setBody(bodies[(int) ((i + j) % BODY_COUNT)]);
            MessageAccessor.setProperties(message, properties(i + j));
            messages.add(message);
        }
        MessageExtBatch batch = new MessageExtBatch();
        address(batch, i / count);
        batch.setBody(MessageDecoder.encodeMessages(messages));
        batch.setPropertiesString("");
        return batch;
    }

    private void address(MessageExtBrokerInner message, long i) {
        message.setTopic(topic(i));
        message.setQueueId(queueId(i));
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(HOST);
        message.setStoreHost(HOST);
    }
}
