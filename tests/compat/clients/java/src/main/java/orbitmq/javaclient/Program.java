package orbitmq.javaclient;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** Reads commands from standard input, see README.md of the folder. */
public final class Program {
    private final Map<String, Sender> senders = new ConcurrentHashMap<>();
    private final Map<String, Receiver> receivers = new ConcurrentHashMap<>();
    private final Map<String, Replier> repliers = new ConcurrentHashMap<>();
    private final Map<String, Transactor> transactors = new ConcurrentHashMap<>();

    private Program() {
    }

    public static void main(String[] arguments) throws Exception {
        Program program = new Program();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            Words words = new Words(line);
            // A start or a shutdown can take seconds; other commands do not wait for it.
            new Thread(() -> program.handle(words), words.verb).start();
        }
        program.senders.values().forEach(Sender::stop);
        program.receivers.values().parallelStream().forEach(Receiver::leave);
        program.repliers.values().parallelStream().forEach(Replier::leave);
        program.transactors.values().parallelStream().forEach(Transactor::resign);
        Producers.shutdown();
        System.exit(0);
    }

    private void handle(Words words) {
        try {
            switch (words.verb) {
                case "send":
                    Sender sender = new Sender(words);
                    senders.put(words.id(), sender);
                    sender.run();
                    break;
                case "recall":
                    Rows.write(words, "recalled", "message_id", Timed.recall(Producers.get(words), words));
                    break;
                case "stop":
                    senders.remove(words.id()).stop();
                    break;
                case "subscribe":
                    Receiver receiver = new Receiver(words);
                    receivers.put(words.id(), receiver);
                    receiver.start();
                    break;
                case "request":
                    new Requester(words).run();
                    break;
                case "answer":
                    Replier replier = new Replier(words);
                    repliers.put(words.id(), replier);
                    replier.start();
                    break;
                case "leave":
                    if (repliers.containsKey(words.id())) {
                        repliers.remove(words.id()).leave();
                    } else {
                        receivers.remove(words.id()).leave();
                    }
                    break;
                case "transact":
                    Transactor transactor = new Transactor(words);
                    transactors.put(words.id(), transactor);
                    transactor.run();
                    break;
                case "resign":
                    transactors.remove(words.id()).resign();
                    break;
                default:
                    Rows.write(words, "error", "why", "unknown command " + words.verb);
            }
        } catch (Exception e) {
            Rows.write(words, "error", "why", e + (e.getCause() == null ? "" : ": " + e.getCause()));
        }
    }
}
