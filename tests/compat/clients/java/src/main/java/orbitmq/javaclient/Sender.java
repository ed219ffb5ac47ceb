package orbitmq.javaclient;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** The command {@code send}. */
final class Sender {
    private static final int BATCH = 10;
    private final Words words;
    private final DefaultMQProducer producer;
    private volatile boolean stopped;

    Sender(Words words) throws MQClientException {
        this.words = words;
        producer = Producers.get(words);
    }

    void stop() {
        stopped = true;
    }

    void run() {
        try {
            sendAll();
            Rows.write(words, "done");
        } catch (Exception e) {
            Rows.write(words, "error", "why", String.valueOf(e));
        }
    }

    private void sendAll() throws Exception {
        int count = words.number("count", 1);
        String mode = words.text("mode", "sync");
        CountDownLatch answered = new CountDownLatch(mode.equals("async") ? count : 0);
        for (int i = 0; i < count && !stopped; i++) {
            switch (mode) {
                case "async":
                    producer.send(message(i), new Answered(message(i), answered));
                    break;
                case "oneway":
                    producer.sendOneway(message(i));
                    break;
                case "batch":
                    List<Message> messages = new ArrayList<>();
                    for (int last = Math.min(count, i + BATCH); i < last; i++) {
                        messages.add(message(i));
                    }
                    i--;
                    wroteBatch(messages, producer.send(messages));
                    break;
                default:
                    sendOne(message(i));
                    Thread.sleep(words.number("pace", 0));
            }
        }
        answered.await();
    }

    private void sendOne(Message message) throws InterruptedException {
        try {
            wrote(message, producer.send(message));
        } catch (InterruptedException e) {
            throw e;
        } catch (Exception e) {
            failed(message, e);
        }
    }

    private Message message(int number) {
        String body = words.text("body", "") + number;
        String filler = "x".repeat(words.number("filler", 0));
        String tag = words.text("tag", "");
        Message message = new Message(
            words.text("topic", ""), tag, words.text("key", ""), (body + filler).getBytes(StandardCharsets.UTF_8));
        if (words.number("delay", 0) > 0) {
            message.setDelayTimeLevel(words.number("delay", 0));
        }
        Timed.set(words, message);
        return message;
    }

    private static String body(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    private void wrote(Message message, SendResult result) {
        Rows.write(words, "sent", "body", body(message), "message_id", result.getMsgId(), "offset_id",
            result.getOffsetMsgId(), "status", result.getSendStatus(), "broker", result.getMessageQueue().getBrokerName(),
            "queue", result.getMessageQueue().getQueueId(), "offset", result.getQueueOffset(),
            "handle", Timed.handle(result));
    }

    /** A batch that stays one record has one id. */
    private void wroteBatch(List<Message> messages, SendResult result) {
        String[] offsetIds = result.getOffsetMsgId().split(",");
        for (int i = 0; i < messages.size(); i++) {
            Rows.write(words, "sent", "body", body(messages.get(i)), "message_id", result.getMsgId(), "offset_id",
                offsetIds[Math.min(i, offsetIds.length - 1)], "status", result.getSendStatus(), "broker", result.getMessageQueue().getBrokerName(),
                "queue", result.getMessageQueue().getQueueId(), "offset", result.getQueueOffset() + i);
        }
    }

    private void failed(Message message, Throwable error) {
        Rows.write(words, "failed", "body", body(message), "why", String.valueOf(error));
    }

    private final class Answered implements SendCallback {
        private final Message message;
        private final CountDownLatch answered;

        Answered(Message message, CountDownLatch answered) {
            this.message = message;
            this.answered = answered;
        }

        @Override
        public void onSuccess(SendResult result) {
            wrote(message, result);
            answered.countDown();
        }

        @Override
        public void onException(Throwable error) {
            failed(message, error);
            answered.countDown();
        }
    }
}
