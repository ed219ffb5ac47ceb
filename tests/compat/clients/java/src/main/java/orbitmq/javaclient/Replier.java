package orbitmq.javaclient;

import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** The command {@code answer}: a push consumer that replies until {@code leave}. */
final class Replier {
    private final Words words;
    private final DefaultMQPushConsumer consumer;
    private final DefaultMQProducer producer;

    Replier(Words words) throws Exception {
        this.words = words;
        producer = Producers.get(new Words("send namesrv=" + words.text("namesrv", "") + " group=repliers"));
        consumer = new DefaultMQPushConsumer(words.text("group", "answers"));
        consumer.setNamesrvAddr(words.text("namesrv", ""));
        consumer.setInstanceName("answer" + words.id());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAwaitTerminationMillisWhenShutdown(3000);
        consumer.setHeartbeatBrokerInterval(3000); // see Receiver
        consumer.subscribe(words.text("topic", ""), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(this::answer);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
    }

    void start() throws Exception {
        consumer.start();
        Rows.write(words, "ready");
    }

    void leave() {
        consumer.shutdown();
        Rows.write(words, "done");
    }

    private void answer(MessageExt request) {
        String body = new String(request.getBody(), StandardCharsets.UTF_8);
        try {
            byte[] reply = ("re:" + body).getBytes(StandardCharsets.UTF_8);
            producer.send(MessageUtil.createReplyMessage(request, reply), 3000);
            Rows.write(words, "got", "body", body);
        } catch (Exception e) {
            Rows.write(words, "failed", "body", body, "why", String.valueOf(e));
        }
    }
}
