package orbitmq.javastore;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.remoting.protocol.body.TopicConfigSerializeWrapper;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** A RocketMQ store on a directory, with broker.conf settings given as key=value. */
final class OpenStore {
    final MessageStoreConfig config = new MessageStoreConfig();
    final DefaultMessageStore store;

    OpenStore(Path root, Map<String, String> settings) throws IOException {
        BrokerConfig broker = new BrokerConfig();
        Properties properties = new Properties();
        properties.putAll(settings);
        MixAll.properties2Object(properties, config);
        MixAll.properties2Object(properties, broker);
        config.setStorePathRootDir(root.toString());
        config.setStorePathCommitLog(root.resolve("commitlog").toString());
        config.setTimerWheelEnable(false);
        // An hour that never comes: reading a store must not clean it.
        config.setDeleteWhen("99");
        store = new DefaultMessageStore(config, new BrokerStatsManager(broker), null, broker, topics(root));
    }

    private static ConcurrentMap<String, TopicConfig> topics(Path root) throws IOException {
        ConcurrentMap<String, TopicConfig> table = new ConcurrentHashMap<>();
        Path file = root.resolve("config/topics.json");
        if (Files.exists(file)) {
            String text = new String(Files.readAllBytes(file), StandardCharsets.UTF_8);
            TopicConfigSerializeWrapper topics =
                TopicConfigSerializeWrapper.fromJson(text, TopicConfigSerializeWrapper.class);
            table.putAll(topics.getTopicConfigTable());
        }
        return table;
    }

    /** Loads and recovers, starts the services and waits until dispatch has caught up; false: it did not load. */
    boolean open() throws Exception {
        if (!store.load()) {
            return false;
        }
        store.start();
        waitDispatched();
        return true;
    }

    void waitDispatched() throws InterruptedException {
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(0, 200_000);
        }
    }

    /** Splits key=value arguments from position `first` on. */
    static Map<String, String> settings(String[] arguments, int first) {
        Map<String, String> settings = new ConcurrentHashMap<>();
        for (int i = first; i < arguments.length; i++) {
            int equals = arguments[i].indexOf('=');
            if (equals < 1) {
                throw new IllegalArgumentException("expected key=value, found " + arguments[i]);
            }
            settings.put(arguments[i].substring(0, equals), arguments[i].substring(equals + 1));
        }
        return settings;
    }
}
