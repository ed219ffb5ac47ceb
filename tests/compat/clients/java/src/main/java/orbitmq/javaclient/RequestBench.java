package orbitmq.javaclient;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Measures requests and replies: threads that ask, and a consumer that replies, both in this process. */
final class RequestBench {
    private static final byte[] BODY = new byte[1024];
    private static final long TIMEOUT = 30_000;

    private RequestBench() {}

    static void run(String namesrv, String topic, int threads, double seconds) throws Exception {
        DefaultMQProducer replier = producer("BenchReplier", namesrv);
        DefaultMQPushConsumer consumer = consumer(namesrv, topic, replier);
        DefaultMQProducer asker = producer("BenchAsker", namesrv);
        Requester.ask(asker, new Message(topic, BODY), 0, TIMEOUT);
        long warmEnd = System.nanoTime() + 2_000_000_000L;
        long end = warmEnd + (long) (seconds * 1e9);
        long[][] latencies = new long[threads][];
        CountDownLatch done = new CountDownLatch(threads);
        for (int number = 0; number < threads; number++) {
            int index = number;
            new Thread(() -> {
                latencies[index] = askUntil(asker, topic, warmEnd, end);
                done.countDown();
            }).start();
        }
        done.await();
        consumer.shutdown();
        asker.shutdown();
        replier.shutdown();
        long[] sorted = Arrays.stream(latencies).flatMapToLong(Arrays::stream).sorted().toArray();
        ClientBench.print(sorted.length / seconds, sorted.length, sorted);
    }

    private static DefaultMQProducer producer(String group, String namesrv) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName(group);
        producer.start();
        return producer;
    }

    private static DefaultMQPushConsumer consumer(String namesrv, String topic, DefaultMQProducer replier)
            throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("BenchAnswers");
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    replier.send(MessageUtil.createReplyMessage(message, message.getBody()), 3000);
                } catch (Exception failure) {
                    failure.printStackTrace();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    private static long[] askUntil(DefaultMQProducer asker, String topic, long warmEnd, long end) {
        List<Long> latencies = new ArrayList<>();
        int number = 0;
        for (long start = System.nanoTime(); start < end; start = System.nanoTime()) {
            try {
                Requester.ask(asker, new Message(topic, BODY), number++, TIMEOUT);
            } catch (Exception failure) {
                failure.printStackTrace();
                System.exit(1);
            }
            if (start >= warmEnd) {
                latencies.add(System.nanoTime() - start);
            }
        }
        return latencies.stream().mapToLong(Long::longValue).toArray();
    }
}
