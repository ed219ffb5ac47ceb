package orbitmq.javaclient;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends as long as it is told, again and again: NAMESRV TOPIC as arguments, then lines of MODE COUNT SECONDS.
 *
 * <p>Modes: threads (so many threads, one message of each on its way) and async (one thread, so many
 * messages on their way). Each line is answered by one of JSON. The process stays warm between them.
 */
public final class SendBench {
    private static final byte[] BODY = new byte[1024];

    private SendBench() {}

    public static void main(String[] arguments) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("JavaSendBench");
        producer.setNamesrvAddr(arguments[0]);
        producer.start();
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            String[] words = line.trim().split(" ");
            int count = Integer.parseInt(words[1]);
            long start = System.nanoTime();
            long end = start + (long) (Double.parseDouble(words[2]) * 1e9);
            long sent = words[0].equals("threads")
                    ? byThreads(producer, arguments[1], count, end)
                    : inFlight(producer, arguments[1], count, end);
            double seconds = (System.nanoTime() - start) / 1e9;
            System.out.printf("{\"rate\":%.1f,\"messages\":%d}%n", sent / seconds, sent);
            System.out.flush();
        }
        System.exit(0);
    }

    private static long byThreads(DefaultMQProducer producer, String topic, int threads, long end)
            throws InterruptedException {
        AtomicLong sent = new AtomicLong();
        CountDownLatch done = new CountDownLatch(threads);
        for (int number = 0; number < threads; number++) {
            new Thread(() -> {
                try {
                    while (System.nanoTime() < end) {
                        require(producer.send(message(topic)));
                        sent.incrementAndGet();
                    }
                } catch (Exception failure) {
                    fail(failure);
                }
                done.countDown();
            }).start();
        }
        done.await();
        return sent.get();
    }

    private static long inFlight(DefaultMQProducer producer, String topic, int count, long end) throws Exception {
        Semaphore room = new Semaphore(count);
        AtomicLong sent = new AtomicLong();
        while (System.nanoTime() < end) {
            room.acquire();
            producer.send(message(topic), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    require(result);
                    sent.incrementAndGet();
                    room.release();
                }

                @Override
                public void onException(Throwable failure) {
                    fail(failure);
                }
            });
        }
        room.acquire(count);
        return sent.get();
    }

    private static Message message(String topic) {
        return new Message(topic, "TagA", "key", BODY);
    }

    private static void require(SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            fail(new IllegalStateException(result.getSendStatus().name()));
        }
    }

    private static void fail(Throwable failure) {
        failure.printStackTrace();
        System.exit(1);
    }
}
