package orbitmq.javaclient;

import java.io.PrintStream;

/** The rows on standard output: one JSON object per line, whole even when several threads write. */
final class Rows {
    private static final PrintStream OUT = System.out;

    private Rows() {
    }

    /** Write a row; {@code members} are names and values by turns. */
    static void write(Words words, String type, Object... members) {
        StringBuilder row = new StringBuilder("{\"id\":").append(quoted(words.id()));
        row.append(",\"type\":").append(quoted(type));
        for (int i = 0; i < members.length; i += 2) {
            Object value = members[i + 1];
            row.append(',').append(quoted((String) members[i])).append(':');
            row.append(value instanceof Number || value == null ? String.valueOf(value) : quoted(value.toString()));
        }
        synchronized (OUT) {
            OUT.println(row.append('}'));
            OUT.flush();
        }
    }

    private static String quoted(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                quoted.append('\\').append(c);
            } else if (c < ' ' || c > '~') {
                quoted.append(String.format("\\u%04x", (int) c));
            } else {
                quoted.append(c);
            }
        }
        return quoted.append('"').toString();
    }
}
