package orbitmq.javaclient;

import java.util.HashMap;
import java.util.Map;

/** One command: its verb and its words {@code key=value}. */
final class Words {
    final String verb;
    private final Map<String, String> values = new HashMap<>();

    Words(String line) {
        String[] words = line.trim().split(" +");
        verb = words[0];
        for (int i = 1; i < words.length; i++) {
            int equals = words[i].indexOf('=');
            values.put(words[i].substring(0, equals), words[i].substring(equals + 1));
        }
    }

    String text(String key, String otherwise) {
        return values.getOrDefault(key, otherwise);
    }

    int number(String key, int otherwise) {
        return Integer.parseInt(text(key, String.valueOf(otherwise)));
    }

    String id() {
        return text("id", "");
    }
}
