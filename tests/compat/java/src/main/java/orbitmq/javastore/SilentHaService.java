package orbitmq.javastore;

import org.apache.rocketmq.store.ha.DefaultHAService;

/** Replication that never opens a port: the store finds it by its service file. Nothing here has a replica. */
public class SilentHaService extends DefaultHAService {
    @Override
    public void start() {
    }

    @Override
    public void shutdown() {
    }
}
