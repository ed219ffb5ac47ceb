package orbitmq.javaclient;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** The command {@code request}: messages whose replies are waited for. */
final class Requester {
    private final Words words;
    private final DefaultMQProducer producer;

    Requester(Words words) throws Exception {
        this.words = words;
        producer = Producers.get(words);
    }

    void run() throws Exception {
        int timeout = words.number("wait", 10000);
        for (int i = 0; i < words.number("count", 1); i++) {
            String body = words.text("body", "") + i + "x".repeat(words.number("filler", 0));
            Message request = new Message(words.text("topic", ""), body.getBytes(StandardCharsets.UTF_8));
            try {
                Message reply = ask(producer, request, i, timeout);
                Rows.write(words, "replied", "body", body, "reply", new String(reply.getBody(), StandardCharsets.UTF_8),
                    "message_type", reply.getProperty("MSG_TYPE"));
            } catch (Exception e) {
                Rows.write(words, "failed", "body", body, "why", String.valueOf(e));
            }
        }
        Rows.write(words, "done");
    }

    /**
     * Return the reply. Of the ways to ask that 5.3.3 has, only those with a callback and a chosen queue wait for the
     * reply; the others are over when the broker has the request.
     */
    static Message ask(DefaultMQProducer producer, Message request, int number, long timeout) throws Exception {
        CompletableFuture<Message> replied = new CompletableFuture<>();
        RequestCallback callback = new RequestCallback() {
            @Override
            public void onSuccess(Message message) {
                replied.complete(message);
            }

            @Override
            public void onException(Throwable failure) {
                replied.completeExceptionally(failure);
            }
        };
        producer.request(request, Requester::inTurn, number, callback, timeout);
        return replied.get(timeout + 5000, TimeUnit.MILLISECONDS);
    }

    private static MessageQueue inTurn(List<MessageQueue> queues, Message request, Object number) {
        return queues.get((Integer) number % queues.size());
    }
}
