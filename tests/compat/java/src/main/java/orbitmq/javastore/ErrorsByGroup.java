package orbitmq.javastore;

import java.io.ByteArrayOutputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** Standard error, kept apart by the group of the thread that wrote: each store of a process has its own. */
final class ErrorsByGroup extends OutputStream {
    private final Map<ThreadGroup, ByteArrayOutputStream> written = new ConcurrentHashMap<>();

    static ErrorsByGroup install() {
        ErrorsByGroup errors = new ErrorsByGroup();
        System.setErr(new PrintStream(errors, true, StandardCharsets.UTF_8));
        System.setOut(System.err);
        return errors;
    }

    /** Returns what threads of a group have written so far. */
    String of(ThreadGroup group) {
        return bytes(group).toString(StandardCharsets.UTF_8);
    }

    @Override
    public void write(int value) {
        bytes(Thread.currentThread().getThreadGroup()).write(value);
    }

    @Override
    public void write(byte[] source, int offset, int length) {
        bytes(Thread.currentThread().getThreadGroup()).write(source, offset, length);
    }

    private ByteArrayOutputStream bytes(ThreadGroup group) {
        return written.computeIfAbsent(group, unused -> new ByteArrayOutputStream());
    }
}
