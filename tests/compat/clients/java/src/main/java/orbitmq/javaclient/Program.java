package orbitmq.javaclient;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/** Reads commands from standard input, see README.md of the folder. The one argument is the name servers' addresses. */
public final class Program {
    private final String namesrv;
    private final Map<String, Sender> senders = new HashMap<>();
    private final Map<String, Receiver> receivers = new HashMap<>();

    private Program(String namesrv) {
        this.namesrv = namesrv;
    }

    public static void main(String[] arguments) throws Exception {
        Program program = new Program(arguments[0]);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            Words words = new Words(line);
            try {
                program.handle(words);
            } catch (Exception e) {
                Rows.write(words, "error", "why", String.valueOf(e));
            }
        }
        program.senders.values().forEach(Sender::stop);
        program.receivers.values().forEach(Receiver::leave);
        Producers.shutdown();
        System.exit(0);
    }

    private void handle(Words words) throws Exception {
        switch (words.verb) {
            case "send":
                Sender sender = new Sender(words, namesrv);
                senders.put(words.id(), sender);
                new Thread(sender, "send").start();
                break;
            case "stop":
                senders.remove(words.id()).stop();
                break;
            case "subscribe":
                Receiver receiver = new Receiver(words, namesrv);
                receivers.put(words.id(), receiver);
                receiver.start();
                break;
            case "leave":
                receivers.remove(words.id()).leave();
                break;
            default:
                Rows.write(words, "error", "why", "unknown command " + words.verb);
        }
    }
}
