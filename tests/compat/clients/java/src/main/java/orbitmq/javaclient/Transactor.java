package orbitmq.javaclient;

import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** The command {@code transact}: a body ends with two letters, what is said at once and what when asked. */
final class Transactor implements TransactionListener {
    private final Words words;
    private final TransactionMQProducer producer;

    Transactor(Words words) {
        this.words = words;
        producer = new TransactionMQProducer(words.text("group", "transactors"));
        producer.setNamesrvAddr(words.text("namesrv", ""));
        producer.setInstanceName("transact" + words.id());
        producer.setSendMsgTimeout(10000);
        producer.setTransactionListener(this);
    }

    void run() throws Exception {
        producer.start();
        int number = 0;
        for (String plan : words.text("plan", "").split(",")) {
            if (!plan.isEmpty()) {
                String body = words.text("body", "") + number++ + "-" + plan;
                byte[] bytes = body.getBytes(StandardCharsets.UTF_8);
                producer.sendMessageInTransaction(new Message(words.text("topic", ""), "", "", bytes), null);
            }
        }
        Rows.write(words, "ready");
    }

    void resign() {
        producer.shutdown();
        Rows.write(words, "done");
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
        return told("sent", message, 2);
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        return told("checked", message, 1);
    }

    private LocalTransactionState told(String row, Message message, int fromEnd) {
        String body = new String(message.getBody(), StandardCharsets.UTF_8);
        Rows.write(words, row, "body", body, "message_id", message.getTransactionId());
        switch (body.charAt(body.length() - fromEnd)) {
            case 'C':
                return LocalTransactionState.COMMIT_MESSAGE;
            case 'R':
                return LocalTransactionState.ROLLBACK_MESSAGE;
            default:
                return LocalTransactionState.UNKNOW;
        }
    }
}
