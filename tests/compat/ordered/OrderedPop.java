import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.AckCallback;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.AckStatus;
import org.apache.rocketmq.client.consumer.PopCallback;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.consumer.PopStatus;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ChangeInvisibleTimeRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;

/**
 * A consumer that pops in order: NAMESRV BROKER_NAME BROKER TOPIC GROUP QUEUES COUNT.
 *
 * <p>RocketMQ's push consumer never asks for order when it pops, so this uses the API below it. Sends COUNT messages to
 * each queue, takes them a few at a time, gives every third one back once for half a second with all behind it, and
 * prints a line for each that it took: queue, number, deliveries before, "done" or "back".
 */
public final class OrderedPop {
    private static final int AT_ONCE = 4;
    private static final long INVISIBLE = 30_000;
    private static final long BACK = 500;
    private static final long TIMEOUT = 20_000;

    private final String brokerName;
    private final String broker;
    private final String topic;
    private final String group;
    private final MQClientAPIImpl api;
    private final Set<String> failed = new HashSet<>();

    private OrderedPop(String[] words, MQClientAPIImpl api) {
        brokerName = words[1];
        broker = words[2];
        topic = words[3];
        group = words[4];
        this.api = api;
    }

    public static void main(String[] words) throws Exception {
        int queues = Integer.parseInt(words[5]);
        int count = Integer.parseInt(words[6]);
        DefaultMQProducer producer = new DefaultMQProducer("ordered-senders");
        producer.setNamesrvAddr(words[0]);
        producer.start();
        for (int number = 0; number < count; number++) {
            for (int queue = 0; queue < queues; queue++) {
                byte[] body = (queue + " " + number).getBytes(StandardCharsets.UTF_8);
                producer.send(new Message(words[3], body), new MessageQueue(words[3], words[1], queue), TIMEOUT);
            }
        }
        MQClientAPIImpl api = producer.getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl();
        new OrderedPop(words, api).takeAll(queues * count);
        System.out.println("end");
        System.exit(0);
    }

    private void takeAll(int left) throws Exception {
        while (left > 0) {
            PopResult result = pop();
            if (result.getPopStatus() != PopStatus.FOUND) {
                continue;
            }
            boolean isBack = false;
            for (MessageExt message : result.getMsgFoundList()) {
                String text = new String(message.getBody(), StandardCharsets.UTF_8);
                int number = Integer.parseInt(text.split(" ")[1]);
                isBack |= number % 3 == 2 && failed.add(text);
                System.out.println(text + " " + message.getReconsumeTimes() + (isBack ? " back" : " done"));
                if (isBack) {
                    giveBack(message);
                } else {
                    acknowledge(message);
                    left--;
                }
            }
        }
    }

    private PopResult pop() throws Exception {
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setConsumerGroup(group);
        header.setTopic(topic);
        header.setQueueId(-1);
        header.setMaxMsgNums(AT_ONCE);
        header.setInvisibleTime(INVISIBLE);
        header.setPollTime(1_000);
        header.setBornTime(System.currentTimeMillis());
        header.setInitMode(0);
        header.setExpType("TAG");
        header.setExp("*");
        header.setOrder(true);
        CompletableFuture<PopResult> found = new CompletableFuture<>();
        api.popMessageAsync(brokerName, broker, header, TIMEOUT, new PopCallback() {
            @Override
            public void onSuccess(PopResult result) {
                found.complete(result);
            }

            @Override
            public void onException(Throwable failure) {
                found.completeExceptionally(failure);
            }
        });
        return found.get(TIMEOUT, TimeUnit.MILLISECONDS);
    }

    private void acknowledge(MessageExt message) throws Exception {
        String handle = message.getProperty(MessageConst.PROPERTY_POP_CK);
        String[] parts = ExtraInfoUtil.split(handle);
        AckMessageRequestHeader header = new AckMessageRequestHeader();
        header.setTopic(ExtraInfoUtil.getRealTopic(parts, topic, group));
        header.setConsumerGroup(group);
        header.setQueueId(ExtraInfoUtil.getQueueId(parts));
        header.setOffset(ExtraInfoUtil.getQueueOffset(parts));
        header.setExtraInfo(handle);
        Answer answer = new Answer();
        api.ackMessageAsync(broker, TIMEOUT, answer, header);
        answer.require(AckStatus.OK);
    }

    private void giveBack(MessageExt message) throws Exception {
        String handle = message.getProperty(MessageConst.PROPERTY_POP_CK);
        String[] parts = ExtraInfoUtil.split(handle);
        ChangeInvisibleTimeRequestHeader header = new ChangeInvisibleTimeRequestHeader();
        header.setTopic(ExtraInfoUtil.getRealTopic(parts, topic, group));
        header.setConsumerGroup(group);
        header.setQueueId(ExtraInfoUtil.getQueueId(parts));
        header.setOffset(ExtraInfoUtil.getQueueOffset(parts));
        header.setExtraInfo(handle);
        header.setInvisibleTime(BACK);
        Answer answer = new Answer();
        api.changeInvisibleTimeAsync(brokerName, broker, header, TIMEOUT, answer);
        answer.require(AckStatus.OK);
    }

    private static final class Answer implements AckCallback {
        private final CompletableFuture<AckStatus> status = new CompletableFuture<>();

        @Override
        public void onSuccess(AckResult result) {
            status.complete(result.getStatus());
        }

        @Override
        public void onException(Throwable failure) {
            status.completeExceptionally(failure);
        }

        void require(AckStatus wanted) throws Exception {
            AckStatus found = status.get(TIMEOUT, TimeUnit.MILLISECONDS);
            if (found != wanted) {
                throw new IllegalStateException(found.name());
            }
        }
    }
}
