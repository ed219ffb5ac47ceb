package orbitmq.javaclient;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** Measures a broker through the Java client: send NAMESRV TOPIC THREADS BATCH SECONDS, push NAMESRV TOPIC THREADS COUNT, or request NAMESRV TOPIC THREADS SECONDS. */
public final class ClientBench {
    private static final byte[] BODY = new byte[1024];

    private ClientBench() {}

    public static void main(String[] arguments) throws Exception {
        String namesrv = arguments[1];
        String topic = arguments[2];
        int threads = Integer.parseInt(arguments[3]);
        if (arguments[0].equals("send")) {
            send(namesrv, topic, threads, Integer.parseInt(arguments[4]), Double.parseDouble(arguments[5]));
        } else if (arguments[0].equals("request")) {
            RequestBench.run(namesrv, topic, threads, Double.parseDouble(arguments[4]));
        } else {
            push(namesrv, topic, threads, Long.parseLong(arguments[4]));
        }
        System.exit(0);
    }

    private static void send(String namesrv, String topic, int threads, int batch, double seconds) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("BenchProducer");
        producer.setNamesrvAddr(namesrv);
        producer.start();
        long warmEnd = System.nanoTime() + 2_000_000_000L;
        long end = warmEnd + (long) (seconds * 1e9);
        long[][] latencies = new long[threads][];
        AtomicLong all = new AtomicLong();
        CountDownLatch done = new CountDownLatch(threads);
        for (int number = 0; number < threads; number++) {
            int index = number;
            new Thread(() -> {
                latencies[index] = sendUntil(producer, topic, batch, warmEnd, end, all);
                done.countDown();
            }).start();
        }
        done.await();
        producer.shutdown();
        long count = Arrays.stream(latencies).mapToLong(part -> part.length).sum();
        long[] sorted = Arrays.stream(latencies).flatMapToLong(Arrays::stream).sorted().toArray();
        print(count * batch / seconds, all.get() * batch, sorted);
    }

    private static long[] sendUntil(
            DefaultMQProducer producer, String topic, int batch, long warmEnd, long end, AtomicLong all) {
        List<Long> latencies = new ArrayList<>();
        while (true) {
            long start = System.nanoTime();
            if (start >= end) {
                return latencies.stream().mapToLong(Long::longValue).toArray();
            }
            try {
                SendStatus status = (batch == 1
                        ? producer.send(new Message(topic, "TagA", "key", BODY))
                        : producer.send(messages(topic, batch))).getSendStatus();
                if (status != SendStatus.SEND_OK) {
                    throw new IllegalStateException(status.name());
                }
            } catch (Exception failure) {
                failure.printStackTrace();
                System.exit(1);
            }
            all.incrementAndGet();
            if (start >= warmEnd) {
                latencies.add(System.nanoTime() - start);
            }
        }
    }

    private static List<Message> messages(String topic, int batch) {
        List<Message> made = new ArrayList<>(batch);
        for (int number = 0; number < batch; number++) {
            made.add(new Message(topic, "TagA", "key", BODY));
        }
        return made;
    }

    private static void push(String namesrv, String topic, int threads, long wanted) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("BenchConsumer" + System.nanoTime());
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeThreadMin(threads);
        consumer.setConsumeThreadMax(threads);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(32);
        consumer.subscribe(topic, "*");
        AtomicLong count = new AtomicLong();
        AtomicLong first = new AtomicLong();
        CountDownLatch done = new CountDownLatch(1);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            first.compareAndSet(0, System.nanoTime());
            if (count.addAndGet(messages.size()) >= wanted) {
                done.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        if (!done.await(120, TimeUnit.SECONDS)) {
            throw new IllegalStateException(count.get() + " of " + wanted + " messages in 120 s");
        }
        double seconds = (System.nanoTime() - first.get()) / 1e9;
        consumer.shutdown();
        print(count.get() / seconds, count.get(), new long[] {0});
    }

    static void print(double rate, long messages, long[] sorted) {
        System.out.printf(
                "{\"rate\":%.1f,\"messages\":%d,\"p50_ms\":%.4f,\"p99_ms\":%.4f,\"p999_ms\":%.4f}%n",
                rate, messages, at(sorted, 0.5), at(sorted, 0.99), at(sorted, 0.999));
    }

    private static double at(long[] sorted, double share) {
        return sorted[(int) Math.min(sorted.length - 1, sorted.length * share)] / 1e6;
    }
}
