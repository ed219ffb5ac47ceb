package orbitmq.javastore;

import org.apache.rocketmq.store.CommitLogDispatcher;
import org.apache.rocketmq.store.DispatchRequest;

/**
 * Keeps index files from sharing a name. RocketMQ names them by the millisecond; a warm process fills the small ones of
 * the tests faster than that, and the second of a name takes the place of the first.
 */
final class IndexNames implements CommitLogDispatcher {
    private final int stride;
    private int count;

    /** A record has at most a handful of keys: less than one file's records pass between two waits. */
    IndexNames(int itemsPerFile) {
        stride = Math.max(1, itemsPerFile / 8);
    }

    @Override
    public void dispatch(DispatchRequest request) {
        if (++count % stride == 0) {
            long now = System.currentTimeMillis();
            while (System.currentTimeMillis() == now) {
                Thread.onSpinWait();
            }
        }
    }
}
