import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.impl.consumer.DefaultMQPushConsumerImpl;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs mqadmin commands in one process, as a start for each would take most of the time.
 *
 * <p>Each line of standard input is one command, its words separated by tabs; what it printed follows on standard
 * output, ended by a line with a single form feed. Two commands are not mqadmin's:
 * <pre>
 * !subscribe group topic count   start a push consumer, wait until it got so many messages
 * !commit topic                  wait until it has consumed everything, and save its offsets at the broker
 * </pre>
 */
public final class ManyCommands {
    private static DefaultMQPushConsumer consumer;

    private ManyCommands() {
    }

    public static void main(String[] args) throws Exception {
        hurry(Thread.currentThread());
        PrintStream out = System.out;
        PrintStream err = System.err;
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            PrintStream captured = new PrintStream(bytes, true, "UTF-8");
            System.setOut(captured);
            System.setErr(captured);
            try {
                run(line.split("\t"));
            } catch (Throwable error) {
                error.printStackTrace(captured);
            }
            captured.flush();
            System.setOut(out);
            System.setErr(err);
            out.write(bytes.toByteArray());
            out.write("\n\f\n".getBytes(StandardCharsets.UTF_8));
            out.flush();
        }
        if (consumer != null) {
            consumer.shutdown();
        }
        System.exit(0);
    }

    private static void run(String[] words) throws Exception {
        switch (words[0]) {
            case "!subscribe":
                subscribe(words[1], words[2], Integer.parseInt(words[3]));
                break;
            case "!commit":
                commit(words[1]);
                break;
            default:
                // Some commands keep what they used in themselves: each gets a new object.
                Field commands = MQAdminStartup.class.getDeclaredField("SUB_COMMANDS");
                commands.setAccessible(true);
                ((List<?>) commands.get(null)).clear();
                MQAdminStartup.main0(words, null);
        }
    }

    /** Ends a wait of up to three seconds that every command has at its end: for a thread that looks at an empty queue. */
    private static void hurry(Thread main) {
        Thread watcher = new Thread(() -> {
            while (true) {
                boolean waits = Arrays.stream(main.getStackTrace())
                    .anyMatch(frame -> frame.getClassName().endsWith(".ServiceThread"));
                if (waits) {
                    Thread.getAllStackTraces().keySet().stream()
                        .filter(thread -> thread.getName().startsWith("NettyEventExecutor"))
                        .forEach(Thread::interrupt);
                }
                try {
                    Thread.sleep(20);
                } catch (InterruptedException end) {
                    return;
                }
            }
        });
        watcher.setDaemon(true);
        watcher.start();
    }

    private static void commit(String topic) throws Exception {
        DefaultMQPushConsumerImpl impl = consumer.getDefaultMQPushConsumerImpl();
        long end = System.currentTimeMillis() + 30_000;
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
            long target = impl.maxOffset(queue);
            while (impl.getOffsetStore().readOffset(queue, ReadOffsetType.READ_FROM_MEMORY) < target
                && System.currentTimeMillis() < end) {
                Thread.sleep(20);
            }
            // Not persistConsumerOffset: that one does not wait for the broker, nor tell what was lost.
            impl.getOffsetStore().updateConsumeOffsetToBroker(queue, target, false);
            long saved = impl.getOffsetStore().readOffset(queue, ReadOffsetType.READ_FROM_STORE);
            if (saved != target) {
                System.out.println("offset of " + queue + " is " + saved + " instead of " + target);
            }
        }
    }

    private static void subscribe(String group, String topic, int count) throws Exception {
        AtomicInteger got = new AtomicInteger();
        consumer = new DefaultMQPushConsumer(group);
        consumer.setInstanceName("subscriber");
        consumer.setNamesrvAddr(System.getProperty("rocketmq.namesrv.addr"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "TagA || TagB");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            got.addAndGet(messages.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        long end = System.currentTimeMillis() + 30_000;
        while (got.get() < count && System.currentTimeMillis() < end) {
            Thread.sleep(20);
        }
        System.out.println("got " + got.get());
    }
}
