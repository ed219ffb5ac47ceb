package orbitmq.javaclient;

import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;

/** One producer for each way of configuring it, kept until the end: a shutdown takes up to three seconds. */
final class Producers {
    private static final Map<String, DefaultMQProducer> STARTED = new HashMap<>();

    private Producers() {
    }

    static synchronized DefaultMQProducer get(Words words) throws MQClientException {
        String group = words.text("group", "senders");
        boolean vip = words.text("vip", "false").equals("true");
        int timeout = words.number("timeout", 10000);
        int poll = words.number("poll", 30000);
        String namesrv = words.text("namesrv", "");
        String name = String.join("-", group, String.valueOf(vip), String.valueOf(timeout), String.valueOf(poll), namesrv);
        boolean trace = words.text("trace", "false").equals("true");
        if (trace) {
            name += "-traced";
        }
        DefaultMQProducer producer = STARTED.get(name);
        if (producer == null) {
            producer = new DefaultMQProducer(group, trace, null);
            producer.setNamesrvAddr(namesrv);
            producer.setInstanceName(name);
            producer.setVipChannelEnabled(vip);
            producer.setSendMsgTimeout(timeout);
            producer.setPollNameServerInterval(poll);
            producer.setRetryTimesWhenSendFailed(words.number("retries", 2));
            rest(producer);
            producer.start();
            STARTED.put(name, producer);
        }
        return producer;
    }

    /** Has the two threads of automatic batches, which nobody uses here, wake up less often than 200 times a second. */
    private static void rest(DefaultMQProducer producer) {
        try {
            DefaultMQProducer.class.getMethod("batchMaxDelayMs", int.class).invoke(producer, 1000);
        } catch (NoSuchMethodException older) {
            return; // 4.9 has no such threads
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    static void shutdown() {
        STARTED.values().parallelStream().forEach(DefaultMQProducer::shutdown);
    }
}
