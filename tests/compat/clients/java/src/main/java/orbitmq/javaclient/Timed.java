package orbitmq.javaclient;

import java.lang.reflect.InvocationTargetException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** What only newer clients have, by name: delivery at a time, and recall. */
final class Timed {
    private Timed() {
    }

    /** Let a message wait as the words say: {@code delayms=}, {@code delaysec=} or {@code deliver=}. */
    static void set(Words words, Message message) {
        call(words, "delayms", message, "setDelayTimeMs");
        call(words, "delaysec", message, "setDelayTimeSec");
        call(words, "deliver", message, "setDeliverTimeMs");
    }

    private static void call(Words words, String word, Message message, String method) {
        String value = words.text(word, "");
        if (!value.isEmpty()) {
            invoke(message, method, new Class<?>[] {long.class}, Long.parseLong(value));
        }
    }

    /** Return the handle of a message that waits, null where there is none. */
    static String handle(SendResult result) {
        try {
            return (String) SendResult.class.getMethod("getRecallHandle").invoke(result);
        } catch (ReflectiveOperationException older) {
            return null;
        }
    }

    static String recall(DefaultMQProducer producer, Words words) {
        Class<?>[] types = {String.class, String.class};
        return (String) invoke(producer, "recallMessage", types, words.text("topic", ""), words.text("handle", ""));
    }

    private static Object invoke(Object target, String method, Class<?>[] types, Object... arguments) {
        try {
            return target.getClass().getMethod(method, types).invoke(target, arguments);
        } catch (InvocationTargetException e) {
            throw new IllegalStateException(e.getCause());
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }
}
