// The reader on the JVM's side: it takes Arrow batches as columns from a Python process over a Unix socket.
//
// Compiled when a session needs it by the Janino that Spark ships (install.py), which knows no lambdas and little
// of generics. It reads, and knows nothing of the log's format: what there is to read, which filters are taken and
// all bytes come from the pool of Python processes (pool.py, worker.py). Streams, writes and the topics of a
// cluster are left to the plain Python source. Spark finds it by its name: format("orbitmq") is orbitmq.DefaultSource.
package orbitmq;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.EOFException;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.net.SocketException;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.ReadableByteChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Set;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.IntVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkFiles;
import org.apache.spark.TaskContext;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.expressions.aggregate.AggregateFunc;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.Count;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.aggregate.Max;
import org.apache.spark.sql.connector.expressions.aggregate.Min;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomSumMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.internal.connector.SupportsMetadata;
import org.apache.spark.sql.sources.EqualNullSafe;
import org.apache.spark.sql.sources.EqualTo;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.sources.GreaterThan;
import org.apache.spark.sql.sources.GreaterThanOrEqual;
import org.apache.spark.sql.sources.In;
import org.apache.spark.sql.sources.IsNotNull;
import org.apache.spark.sql.sources.IsNull;
import org.apache.spark.sql.sources.LessThan;
import org.apache.spark.sql.sources.LessThanOrEqual;
import org.apache.spark.sql.sources.Not;
import org.apache.spark.sql.sources.StringStartsWith;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

public class DefaultSource implements TableProvider {
  static final ObjectMapper JSON = new ObjectMapper();
  private PythonDataSourceV2 plain;

  public boolean supportsExternalMetadata() {
    return true;
  }

  public StructType inferSchema(CaseInsensitiveStringMap options) {
    if (!serves(options)) {
      return plain().inferSchema(options);
    }
    ObjectNode request = JSON.createObjectNode();
    request.put("what", "schema");
    request.set("query", query(options.asCaseSensitiveMap(), null));
    return (StructType) DataType.fromJson(Pool.ask(python(), request).get("schema").asText());
  }

  public Table getTable(StructType schema, Transform[] partitioning, Map properties) {
    Table table = plain().getTable(schema, partitioning, properties);
    if (!serves(new CaseInsensitiveStringMap(properties))) {
      return table;
    }
    return new ColumnTable(schema, query(properties, schema), table);
  }

  /** The plain source, for what this reader leaves to it; made when it is needed. */
  private PythonDataSourceV2 plain() {
    if (plain == null) {
      plain = new PythonDataSourceV2();
      plain.setShortName("orbitmq");
    }
    return plain;
  }

  static String python() {
    return SQLConf.get().getConfString("spark.orbitmq.columns.python", "");
  }

  private static boolean serves(CaseInsensitiveStringMap options) {
    String setting = SQLConf.get().getConfString("spark.orbitmq.reader", "auto");
    String wanted = options.containsKey("reader") ? options.get("reader") : setting;
    return !options.containsKey("namesrv") && !wanted.trim().equalsIgnoreCase("rows") && !python().isEmpty();
  }

  private static ObjectNode query(Map options, StructType schema) {
    ObjectNode query = JSON.createObjectNode();
    ObjectNode texts = query.putObject("options");
    for (Iterator names = options.keySet().iterator(); names.hasNext();) {
      String name = (String) names.next();
      texts.put(name, (String) options.get(name));
    }
    // One moment for the whole query, whoever reads its options: "now-1h" is to mean the same in all tasks.
    query.put("now_ms", System.currentTimeMillis());
    query.put("cores", SparkContext.getOrCreate().defaultParallelism());
    if (schema != null) {
      query.put("schema", schema.json());
    }
    return query;
  }

  /** An element; Janino takes the call by itself for that of an interface which knows less. */
  static JsonNode at(JsonNode list, int index) {
    return (JsonNode) list.get(index);
  }

  // --- the table, its scan and what is pushed down ---

  public static class ColumnTable implements SupportsRead, SupportsWrite {
    final StructType schema;
    final ObjectNode query;
    final Table plain;

    public ColumnTable(StructType schema, ObjectNode query, Table plain) {
      this.schema = schema;
      this.query = query;
      this.plain = plain;
    }

    public String name() {
      return "orbitmq";
    }

    public StructType schema() {
      return schema;
    }

    public Set capabilities() {
      return plain.capabilities();
    }

    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      return new Builder(schema, query.deepCopy(), ((SupportsRead) plain).newScanBuilder(options));
    }

    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      return ((SupportsWrite) plain).newWriteBuilder(info);
    }
  }

  public static class Builder implements ScanBuilder, SupportsPushDownFilters, SupportsPushDownAggregates,
      SupportsPushDownRequiredColumns, SupportsPushDownLimit {
    private StructType columns;
    private final ObjectNode query;
    private final ScanBuilder plain;
    private Filter[] pushed = new Filter[0];

    public Builder(StructType schema, ObjectNode query, ScanBuilder plain) {
      this.columns = schema;
      this.query = query;
      this.plain = plain;
    }

    public Filter[] pushFilters(Filter[] filters) {
      List asked = new ArrayList();
      List left = new ArrayList();
      ArrayNode described = JSON.createArrayNode();
      boolean enabled = SQLConf.get().pythonFilterPushDown();
      for (int i = 0; i < filters.length; i++) {
        ObjectNode one = enabled ? Filters.described(filters[i]) : null;
        (one == null ? left : asked).add(filters[i]);
        if (one != null) {
          described.add(one);
        }
      }
      if (asked.isEmpty()) {
        return filters;
      }
      ObjectNode request = JSON.createObjectNode();
      request.put("what", "filters");
      query.set("filters", described);
      request.set("query", query);
      JsonNode taken = Pool.ask(python(), request).get("taken");
      ArrayNode kept = JSON.createArrayNode();
      List done = new ArrayList();
      for (int i = 0; i < asked.size(); i++) {
        if (at(taken, i).asBoolean()) {
          done.add(asked.get(i));
          kept.add(at(described, i));
        } else {
          left.add(asked.get(i));
        }
      }
      query.set("filters", kept);
      pushed = (Filter[]) done.toArray(new Filter[0]);
      return (Filter[]) left.toArray(new Filter[0]);
    }

    public Filter[] pushedFilters() {
      return pushed;
    }

    /** Let Python count, if it takes that: a few rows for each batch come here then, and Spark adds them up. */
    public boolean pushAggregation(Aggregation wanted) {
      ObjectNode described = Aggregates.described(wanted);
      if (described == null || !SQLConf.get().pythonFilterPushDown()) {
        return false;
      }
      ObjectNode request = JSON.createObjectNode();
      request.put("what", "groups");
      ObjectNode asked = query.deepCopy();
      asked.set("groups", described);
      request.set("query", asked);
      JsonNode schema = Pool.ask(python(), request).get("schema");
      if (schema.isNull()) {
        return false;
      }
      query.set("groups", described);
      columns = (StructType) DataType.fromJson(schema.asText());
      return true;
    }

    public void pruneColumns(StructType required) {
      columns = required;
    }

    public boolean pushLimit(int limit) {
      query.put("limit", limit);
      return true;
    }

    public boolean isPartiallyPushed() {
      return true; // so many of each task
    }

    public Scan build() {
      if (!query.has("groups")) {
        ArrayNode names = query.putArray("columns");
        String[] fields = columns.fieldNames();
        for (int i = 0; i < fields.length; i++) {
          names.add(fields[i]);
        }
      }
      return new ColumnScan(columns, query, pushed, plain);
    }
  }

  public static class ColumnScan implements Scan, Batch, SupportsReportStatistics, SupportsMetadata {
    private final StructType columns;
    private final ObjectNode query;
    private final Filter[] pushed;
    private final ScanBuilder plainBuilder;
    private Scan plain;
    private ObjectNode wanted;
    private JsonNode tasks;

    public ColumnScan(StructType columns, ObjectNode query, Filter[] pushed, ScanBuilder plainBuilder) {
      this.columns = columns;
      this.query = query;
      this.pushed = pushed;
      this.plainBuilder = plainBuilder;
    }

    public StructType readSchema() {
      return columns;
    }

    public Batch toBatch() {
      return this;
    }

    public MicroBatchStream toMicroBatchStream(String checkpoint) {
      plain = plainBuilder.build();
      return plain.toMicroBatchStream(checkpoint);
    }

    public Scan.ColumnarSupportMode columnarSupportMode() {
      return plain == null ? Scan.ColumnarSupportMode.SUPPORTED : plain.columnarSupportMode();
    }

    public CustomMetric[] supportedCustomMetrics() {
      return plain == null ? new CustomMetric[] {new LogBytes()} : plain.supportedCustomMetrics();
    }

    private synchronized JsonNode tasks() {
      if (tasks == null) {
        ObjectNode request = JSON.createObjectNode();
        request.put("what", "plan");
        request.set("query", query);
        JsonNode plan = Pool.ask(python(), request);
        wanted = query.deepCopy();
        wanted.set("options", plan.get("options")); // paths as they are on this machine
        tasks = plan.get("tasks");
      }
      return tasks;
    }

    public InputPartition[] planInputPartitions() {
      InputPartition[] found = new InputPartition[tasks().size()];
      for (int i = 0; i < found.length; i++) {
        found[i] = new Part(at(tasks(), i).get("task").toString());
      }
      return found;
    }

    public PartitionReaderFactory createReaderFactory() {
      tasks();
      return new Factory(python(), wanted.toString(), columns.size());
    }

    public Statistics estimateStatistics() {
      long total = 0;
      for (int i = 0; i < tasks().size(); i++) {
        total += at(tasks(), i).get("bytes").asLong();
      }
      return new LogStatistics(total);
    }

    public String description() {
      if (plain != null) {
        return plain.description();
      }
      return "(columns) PushedFilters: " + filters() + aggregates(", Groups: ") + limit(", Limit: ");
    }

    public scala.collection.immutable.Map getMetaData() {
      return new scala.collection.immutable.Map.Map4(
          "PushedFilters", filters(), "PushedAggregates", aggregates(""), "PushedLimit", limit(""),
          "ReadSchema", columns.simpleString());
    }

    private String filters() {
      return java.util.Arrays.toString(pushed);
    }

    private String aggregates(String before) {
      return query.has("groups") ? before + java.util.Arrays.toString(columns.fieldNames()) : "";
    }

    private String limit(String before) {
      return query.has("limit") ? before + query.get("limit").asText() : "";
    }

    public boolean equals(Object other) {
      return other instanceof ColumnScan && ((ColumnScan) other).query.equals(query);
    }

    public int hashCode() {
      return query.hashCode();
    }
  }

  public static class LogStatistics implements Statistics {
    private final long bytes;

    public LogStatistics(long bytes) {
      this.bytes = bytes;
    }

    public OptionalLong sizeInBytes() {
      return OptionalLong.of(bytes);
    }

    public OptionalLong numRows() {
      return OptionalLong.empty();
    }
  }

  /** Filters as plain data; null for those that no source of ours takes. */
  static class Filters {
    static ObjectNode described(Filter filter) {
      if (filter instanceof Not) {
        Filter child = ((Not) filter).child();
        ObjectNode inner = child instanceof Not ? null : described(child);
        return inner == null ? null : inner.put("negated", true);
      }
      if (filter instanceof EqualTo) {
        return one("EqualTo", ((EqualTo) filter).attribute(), ((EqualTo) filter).value());
      }
      if (filter instanceof EqualNullSafe) {
        return one("EqualNullSafe", ((EqualNullSafe) filter).attribute(), ((EqualNullSafe) filter).value());
      }
      if (filter instanceof GreaterThan) {
        return one("GreaterThan", ((GreaterThan) filter).attribute(), ((GreaterThan) filter).value());
      }
      if (filter instanceof GreaterThanOrEqual) {
        GreaterThanOrEqual order = (GreaterThanOrEqual) filter;
        return one("GreaterThanOrEqual", order.attribute(), order.value());
      }
      if (filter instanceof LessThan) {
        return one("LessThan", ((LessThan) filter).attribute(), ((LessThan) filter).value());
      }
      if (filter instanceof LessThanOrEqual) {
        return one("LessThanOrEqual", ((LessThanOrEqual) filter).attribute(), ((LessThanOrEqual) filter).value());
      }
      if (filter instanceof StringStartsWith) {
        return one("StringStartsWith", ((StringStartsWith) filter).attribute(), ((StringStartsWith) filter).value());
      }
      if (filter instanceof In) {
        return many("In", ((In) filter).attribute(), ((In) filter).values());
      }
      if (filter instanceof IsNull) {
        return many("IsNull", ((IsNull) filter).attribute(), new Object[0]);
      }
      if (filter instanceof IsNotNull) {
        return many("IsNotNull", ((IsNotNull) filter).attribute(), new Object[0]);
      }
      return null;
    }

    private static ObjectNode one(String kind, String column, Object value) {
      return many(kind, column, new Object[] {value});
    }

    private static ObjectNode many(String kind, String column, Object[] values) {
      ObjectNode found = JSON.createObjectNode();
      found.put("kind", kind);
      found.put("column", column);
      ArrayNode described = found.putArray("values");
      for (int i = 0; i < values.length; i++) {
        Object value = values[i];
        if (value instanceof String) {
          described.add((String) value);
        } else if (value instanceof Integer || value instanceof Long || value instanceof Short || value instanceof Byte) {
          described.add(((Number) value).longValue());
        } else if (value instanceof java.sql.Timestamp) {
          described.addObject().put("micros", DateTimeUtils.fromJavaTimestamp((java.sql.Timestamp) value));
        } else if (value instanceof java.time.Instant) {
          described.addObject().put("micros", DateTimeUtils.instantToMicros((java.time.Instant) value));
        } else {
          return null;
        }
      }
      return found;
    }
  }

  /** Counts and the like by groups, as plain data; null for those that no source of ours takes. */
  static class Aggregates {
    static ObjectNode described(Aggregation wanted) {
      ObjectNode found = JSON.createObjectNode();
      ArrayNode by = found.putArray("by");
      Expression[] groups = wanted.groupByExpressions();
      for (int i = 0; i < groups.length; i++) {
        by.add(column(groups[i]));
      }
      ArrayNode made = found.putArray("made");
      AggregateFunc[] functions = wanted.aggregateExpressions();
      for (int i = 0; i < functions.length; i++) {
        AggregateFunc function = functions[i];
        if (function instanceof CountStar) {
          made.addObject().put("kind", "count");
        } else if (function instanceof Count && !((Count) function).isDistinct()) {
          made.addObject().put("kind", "count").put("column", column(((Count) function).column()));
        } else if (function instanceof Min) {
          made.addObject().put("kind", "min").put("column", column(((Min) function).column()));
        } else if (function instanceof Max) {
          made.addObject().put("kind", "max").put("column", column(((Max) function).column()));
        } else {
          return null;
        }
      }
      return found;
    }

    /** The name of a column; one that no table has for everything else. */
    private static String column(Expression expression) {
      String[] names = expression instanceof NamedReference ? ((NamedReference) expression).fieldNames() : new String[0];
      return names.length == 1 ? names[0] : ".";
    }
  }

  // --- a task ---

  public static class Part implements InputPartition {
    final String task;

    public Part(String task) {
      this.task = task;
    }
  }

  public static class Factory implements PartitionReaderFactory {
    private final String python;
    private final String query;
    private final int columns;

    public Factory(String python, String query, int columns) {
      this.python = python;
      this.query = query;
      this.columns = columns;
    }

    public boolean supportColumnarReads(InputPartition partition) {
      return true;
    }

    public PartitionReader createReader(InputPartition partition) {
      throw new UnsupportedOperationException("this reader has columns only");
    }

    public PartitionReader createColumnarReader(InputPartition partition) {
      TaskContext task = TaskContext.get();
      String name = "stage-" + task.stageId() + "-task-" + task.partitionId();
      String request = "{\"what\":\"read\",\"name\":\"" + name + "\",\"query\":" + query + ",\"task\":"
          + ((Part) partition).task + "}";
      return new Reader(python, request, columns);
    }
  }

  public static class Reader implements PartitionReader {
    private final Link link;
    private final BufferAllocator memory;
    private final ArrowStreamReader arrow;
    private final VectorSchemaRoot root;
    private final ColumnarBatch batch;
    private boolean ended;

    public Reader(String python, String request, int columns) {
      memory = ArrowUtils.rootAllocator().newChildAllocator("orbitmq", 0, Long.MAX_VALUE);
      link = opened(python, request, memory);
      arrow = new ArrowStreamReader(link, memory);
      root = begun(arrow, link, memory);
      // A query that needs no column is given one all the same: it carries the number of rows.
      ColumnVector[] vectors = new ColumnVector[columns];
      for (int i = 0; i < columns; i++) {
        vectors[i] = column(root.getVector(i));
      }
      batch = new ColumnarBatch(vectors);
    }

    /** A column, as it was sent, or of bytes in files, of which the places were sent beside it. */
    private ColumnVector column(FieldVector sent) {
      FieldVector at = root.getVector(sent.getName() + ".at");
      FieldVector length = root.getVector(sent.getName() + ".length");
      ArrowColumnVector vector = new ArrowColumnVector(sent);
      return at == null ? (ColumnVector) vector : new InFile(vector, (BigIntVector) at, (IntVector) length, link);
    }

    private static Link opened(String python, String request, BufferAllocator memory) {
      try {
        return Pool.connect(python).sent(request);
      } catch (Exception error) {
        memory.close();
        throw Pool.failure(error);
      }
    }

    private static VectorSchemaRoot begun(ArrowStreamReader arrow, Link link, BufferAllocator memory) {
      try {
        return arrow.getVectorSchemaRoot();
      } catch (Exception error) {
        closeAll(arrow, link, memory);
        throw Pool.failure(error);
      }
    }

    public boolean next() {
      if (ended) {
        return false;
      }
      try {
        ended = !arrow.loadNextBatch();
        if (ended) {
          link.end();
        } else {
          batch.setNumRows(root.getRowCount());
        }
      } catch (Exception error) {
        throw Pool.failure(error);
      }
      return !ended;
    }

    public Object get() {
      return batch;
    }

    public CustomTaskMetric[] currentMetricsValues() {
      return new CustomTaskMetric[] {new LogBytesOfTask(link.logBytes)};
    }

    public void close() {
      closeAll(arrow, link, memory);
    }

    private static void closeAll(ArrowStreamReader stream, Link link, BufferAllocator memory) {
      try {
        stream.close();
      } catch (IOException error) {
        // Whatever was open belongs to a read that is over.
      }
      try {
        link.close();
      } catch (IOException error) {
        // As above.
      }
      try {
        memory.close();
      } catch (IllegalStateException error) {
        // Arrow keeps the buffer of a batch that did not arrive whole: why it did not is told already.
      }
    }
  }

  /** Bytes that stay in a file until somebody wants them. Those of a row whose place is -1 were sent. */
  static class InFile extends ColumnVector {
    private final ArrowColumnVector sent;
    private final BigIntVector at;
    private final IntVector length;
    private final Link link;

    InFile(ArrowColumnVector sent, BigIntVector at, IntVector length, Link link) {
      super(sent.dataType());
      this.sent = sent;
      this.at = at;
      this.length = length;
      this.link = link;
    }

    public byte[] getBinary(int row) {
      long place = at.get(row);
      if (place < 0) {
        return sent.getBinary(row);
      }
      byte[] bytes = new byte[length.get(row)];
      link.stretch.get((int) place, bytes);
      return bytes;
    }

    public boolean isNullAt(int row) {
      return sent.isNullAt(row);
    }

    public boolean hasNull() {
      return sent.hasNull();
    }

    public int numNulls() {
      return sent.numNulls();
    }

    public void close() {
      sent.close();
    }

    // None of these is asked of a column of bytes.

    public boolean getBoolean(int row) {
      return sent.getBoolean(row);
    }

    public byte getByte(int row) {
      return sent.getByte(row);
    }

    public short getShort(int row) {
      return sent.getShort(row);
    }

    public int getInt(int row) {
      return sent.getInt(row);
    }

    public long getLong(int row) {
      return sent.getLong(row);
    }

    public float getFloat(int row) {
      return sent.getFloat(row);
    }

    public double getDouble(int row) {
      return sent.getDouble(row);
    }

    public ColumnarArray getArray(int row) {
      return sent.getArray(row);
    }

    public ColumnarMap getMap(int row) {
      return sent.getMap(row);
    }

    public Decimal getDecimal(int row, int precision, int scale) {
      return sent.getDecimal(row, precision, scale);
    }

    public UTF8String getUTF8String(int row) {
      return sent.getUTF8String(row);
    }

    public ColumnVector getChild(int ordinal) {
      return sent.getChild(ordinal);
    }
  }

  public static class LogBytes extends CustomSumMetric {
    public LogBytes() {}

    public String name() {
      return "logBytes";
    }

    public String description() {
      return "bytes of the log that were read";
    }
  }

  public static class LogBytesOfTask implements CustomTaskMetric {
    private final long value;

    public LogBytesOfTask(long value) {
      this.value = value;
    }

    public String name() {
      return "logBytes";
    }

    public long value() {
      return value;
    }
  }

  // --- the Python processes of this JVM ---

  /** A connection: requests as JSON, answers in frames (a letter, a length, bytes). See frames.py. */
  public static class Link implements ReadableByteChannel {
    private final SocketChannel socket;
    private final ByteBuffer head = ByteBuffer.allocate(5);
    private int left;
    private String path = "";
    private FileChannel file;
    MappedByteBuffer stretch; // of a file: what the last batch has its bodies in
    long logBytes;

    public Link(SocketChannel socket) {
      this.socket = socket;
    }

    Link sent(String request) throws IOException {
      try {
        send(request);
      } catch (IOException error) {
        close();
        throw error;
      }
      return this;
    }

    private void send(String request) throws IOException {
      byte[] bytes = request.getBytes(StandardCharsets.UTF_8);
      ByteBuffer out = ByteBuffer.allocate(4 + bytes.length);
      out.putInt(bytes.length).put(bytes).flip();
      while (out.hasRemaining()) {
        socket.write(out);
      }
    }

    JsonNode answer() throws IOException {
      expect('J');
      return JSON.readTree(rest());
    }

    /** Read what follows the last batch. */
    void end() throws IOException {
      expect('M');
      logBytes = JSON.readTree(rest()).get("log_bytes").asLong();
    }

    private void expect(char kind) throws IOException {
      char found = kindOfNext();
      if (found != kind) {
        throw unexpected(found, kind);
      }
    }

    private static IOException unexpected(char found, char kind) {
      return new IOException("Python sent a frame " + found + " where " + kind + " was due");
    }

    private char kindOfNext() throws IOException {
      head.clear();
      fill(head);
      head.flip();
      char found = (char) head.get();
      left = head.getInt();
      if (left < 0) {
        throw new IOException("Python sent a frame of " + Integer.toUnsignedString(left) + " bytes, which is too long");
      }
      if (found == 'E') {
        throw new IllegalArgumentException(new String(rest(), StandardCharsets.UTF_8));
      }
      return found;
    }

    /** Map what the next batch has its bodies in. Memory that nobody uses any more the JVM unmaps by itself. */
    private void map(JsonNode wanted) throws IOException {
      String named = wanted.get("path").asText();
      try {
        if (!named.equals(path)) {
          closeFile();
          file = FileChannel.open(Paths.get(named));
          path = named;
        }
        stretch = file.map(FileChannel.MapMode.READ_ONLY, wanted.get("start").asLong(), wanted.get("length").asLong());
      } catch (IOException error) {
        throw new IllegalArgumentException("orbitmq.errors.NotAStoreError: " + named
            + ": cannot be mapped any more. Try again: somebody is changing the store.");
      }
    }

    private void closeFile() throws IOException {
      if (file != null) {
        file.close();
        file = null;
      }
    }

    private byte[] rest() throws IOException {
      byte[] bytes = new byte[left];
      fill(ByteBuffer.wrap(bytes));
      left = 0;
      return bytes;
    }

    private void fill(ByteBuffer target) throws IOException {
      while (target.hasRemaining()) {
        if (socket.read(target) < 0) {
          throw new EOFException("Python worker exited unexpectedly");
        }
      }
    }

    public int read(ByteBuffer target) throws IOException {
      if (!target.hasRemaining()) {
        return 0;
      }
      while (left == 0) { // for Arrow, no bytes would be the end
        char found = kindOfNext();
        if (found == 'F') {
          map(JSON.readTree(rest()));
        } else if (found != 'A') {
          throw unexpected(found, 'A');
        }
      }
      int limit = target.limit();
      if (target.remaining() > left) {
        target.limit(target.position() + left);
      }
      int count = socket.read(target);
      target.limit(limit);
      if (count < 0) {
        throw new EOFException("Python worker exited unexpectedly");
      }
      left -= count;
      return count;
    }

    public boolean isOpen() {
      return socket.isOpen();
    }

    public void close() throws IOException {
      closeFile();
      socket.close();
    }
  }

  /** The pool of this JVM for each Python: one process that forks others, started once, gone with the JVM. */
  public static class Pool {
    private static final Map POOLS = new HashMap();
    /** The driver of a session on one machine may have started a pool while this JVM started. */
    private static String early = System.getenv("ORBITMQ_COLUMN_POOL");
    private final Process process;
    private final String path;

    private Pool(Process process, String path) {
      this.process = process;
      this.path = path;
    }

    static JsonNode ask(String python, ObjectNode request) {
      try {
        return asked(connect(python).sent(request.toString()));
      } catch (Exception error) {
        throw failure(error);
      }
    }

    private static JsonNode asked(Link link) throws IOException {
      try {
        return link.answer();
      } finally {
        link.close();
      }
    }

    static Link connect(String python) throws IOException {
      Pool pool = of(python);
      try {
        return new Link(SocketChannel.open(UnixDomainSocketAddress.of(pool.path)));
      } catch (SocketException gone) {
        forget(python, pool);
        return new Link(SocketChannel.open(UnixDomainSocketAddress.of(of(python).path)));
      }
    }

    /** What went wrong, as an exception that every JVM knows: it travels from a task to the driver. */
    static RuntimeException failure(Exception error) {
      return error instanceof RuntimeException ? (RuntimeException) error : new IllegalArgumentException(error.toString());
    }

    private static synchronized Pool of(String python) throws IOException {
      Pool found = (Pool) POOLS.get(python);
      if (found == null) {
        found = early == null ? started(python) : new Pool(null, early);
        early = null;
        POOLS.put(python, found);
      }
      return found;
    }

    private static synchronized void forget(String python, Pool gone) {
      if (POOLS.get(python) == gone) {
        POOLS.remove(python);
        if (gone.process != null) {
          gone.process.destroy();
        }
      }
    }

    private static Pool started(String python) throws IOException {
      String path = Files.createTempDirectory("orbitmq-").resolve("s").toString(); // for this user alone
      List command = new ArrayList();
      command.add(python);
      command.add("-m");
      command.add("orbitmq.spark.columns.pool");
      command.add(path);
      ProcessBuilder builder = new ProcessBuilder(command);
      builder.environment().put("PYTHONPATH", modulePath());
      Process process = builder.start();
      Said said = new Said(process.getErrorStream());
      said.start();
      if (process.getInputStream().read() != 'R') {
        try {
          said.join(1000);
        } catch (InterruptedException error) {
          Thread.currentThread().interrupt();
        }
        throw new IOException(python + " cannot serve columns: " + said.last);
      }
      return new Pool(process, path);
    }

    private static String modulePath() {
      String sent = SparkFiles.getRootDirectory() + File.separator + "orbitmq.zip";
      String given = System.getenv("PYTHONPATH");
      String path = new File(sent).exists() ? sent + File.pathSeparator : "";
      path += given == null || given.isEmpty() ? "" : given + File.pathSeparator;
      return path + PythonUtils.sparkPythonPath();
    }
  }

  /** Hands on what Python says on its standard error, and keeps the last line. */
  static class Said extends Thread {
    private final BufferedReader lines;
    volatile String last = "it ended without a word";

    Said(InputStream stream) {
      super("orbitmq-columns");
      lines = new BufferedReader(new InputStreamReader(stream, StandardCharsets.UTF_8));
      setDaemon(true);
    }

    public void run() {
      try {
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
          System.err.println(line);
          last = line;
        }
      } catch (IOException error) {
        // The process is gone, and so is what it would have said.
      }
    }
  }
}
