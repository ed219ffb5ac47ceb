package orbitmq.javaclient;

import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** The command {@code subscribe}: a push consumer until {@code leave}. */
final class Receiver {
    private final Words words;
    private final DefaultMQPushConsumer consumer;
    private final int failures;

    Receiver(Words words) throws Exception {
        this.words = words;
        failures = words.number("fail", 0);
        consumer = new DefaultMQPushConsumer(
            words.text("group", "receivers"), words.text("trace", "false").equals("true"), null);
        consumer.setNamesrvAddr(words.text("namesrv", ""));
        consumer.setPollNameServerInterval(words.number("poll", 30000));
        consumer.setInstanceName(words.text("instance", "receive" + words.id()));
        consumer.setVipChannelEnabled(words.text("vip", "false").equals("true"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(2);
        consumer.setConsumeThreadMax(4);
        consumer.setPersistConsumerOffsetInterval(1000);
        // It saves its offsets when it leaves, and would not wait for listeners that are about to return.
        consumer.setAwaitTerminationMillisWhenShutdown(3000);
        // A heartbeat that meets a rebalance is left out; until the next one the broker refuses the pulls.
        consumer.setHeartbeatBrokerInterval(3000);
        consumer.setMaxReconsumeTimes(words.number("times", -1));
        if (words.text("pop", "").equals("true")) {
            // Not in 4.9: there the client decides which queues it has, and pulls them.
            DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class).invoke(consumer, false);
        }
        String sql = words.text("sql", "");
        if (sql.isEmpty()) {
            consumer.subscribe(words.text("topic", ""), words.text("tags", "*"));
        } else {
            consumer.subscribe(words.text("topic", ""), MessageSelector.bySql(sql));
        }
        if (words.text("orderly", "").equals("true")) {
            consumer.setSuspendCurrentQueueTimeMillis(200);
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                take(messages) ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                context.setDelayLevelWhenNextConsume(1);
                return take(messages) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
            });
        }
    }

    void start() throws Exception {
        consumer.start();
        Rows.write(words, "ready");
    }

    void leave() {
        consumer.shutdown();
        Rows.write(words, "done");
    }

    private boolean take(List<MessageExt> messages) {
        boolean taken = true;
        for (MessageExt message : messages) {
            Rows.write(words, "got", "body", new String(message.getBody(), StandardCharsets.UTF_8), "message_id",
                message.getMsgId(), "topic", message.getTopic(), "tag", message.getTags(), "key", message.getKeys(),
                "broker", message.getBrokerName(), "queue", message.getQueueId(), "offset", message.getQueueOffset(),
                "times", message.getReconsumeTimes(), "store_ms", message.getStoreTimestamp());
            taken &= message.getReconsumeTimes() >= failures;
        }
        return taken;
    }
}
