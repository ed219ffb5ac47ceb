package orbitmq.javastore;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;

/** The answers of a program: one JSON object per line on standard output. */
final class Rows implements AutoCloseable {
    private final PrintStream out;

    /** Takes standard output for the rows alone: whatever else prints goes to standard error. */
    Rows() {
        FileOutputStream raw = new FileOutputStream(FileDescriptor.out);
        out = new PrintStream(new BufferedOutputStream(raw, 1 << 16), false, StandardCharsets.UTF_8);
        System.setOut(System.err);
    }

    static Map<String, Object> row(String type) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("type", type);
        return row;
    }

    void write(Map<String, Object> row) {
        out.println(JSON.toJSONString(row, SerializerFeature.WriteMapNullValue,
            SerializerFeature.DisableCircularReferenceDetect));
    }

    void flush() {
        out.flush();
    }

    @Override
    public void close() {
        out.flush();
    }
}
