package streamydb;

import java.io.Serializable;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayDeque;
import java.util.Iterator;
import java.util.concurrent.locks.LockSupport;

import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.Row;
import org.apache.spark.util.TaskCompletionListener;

/**
 * Packs the records of a partition: each row holds the records that have come since the last one.
 *
 * A thread of the task reads ahead. A row is one text of bytes, which Spark moves as it is: the
 * number of records, their offsets, their times of appending (8 bytes each), the lengths of their
 * values (4 bytes each; -1: none), and the values; little-endian. An empty row follows when no
 * record waits, because the operator before Python hands a row on only when it has the next one.
 *
 * Each row costs Spark and Python as much as many records, so they are some time apart, and longer
 * while each holds many. What many clients send together comes within fractions of a millisecond,
 * so a row after one of eight records or more waits for that. A record that comes alone does not wait.
 *
 * Janino compiles this text: it knows no lambdas, and no type arguments at calls; it makes private
 * methods static, so that a synchronized one would lock the class.
 */
public final class RecordPacking implements MapPartitionsFunction<Row, byte[]>, Serializable {
  private static final long serialVersionUID = 1L;
  private static final int RECORD_BYTES = 100;
  private static final int MANY = 10;
  private static final int COUNT_BYTES = 8;
  private static final int HEAD_BYTES = 20;
  private static final byte[] NONE = new byte[0];
  private static final long JOIN_MS = 10000L;
  private static final int GROUP = 8;
  private static final long GATHER_NS = 120000L;
  private static final int GATHERS = 16;

  private final int recordsMax;
  private final long bytesMax;
  private final long apartNs;

  /**
   * recordsMax, bytesMax: of one row; the same again may wait. One record is always taken.
   * apartNs: so long after a row the next one may come; four times as long after one of many.
   */
  public RecordPacking(int recordsMax, long bytesMax, long apartNs) {
    this.recordsMax = recordsMax;
    this.bytesMax = bytesMax;
    this.apartNs = apartNs;
  }

  public Iterator<byte[]> call(Iterator<Row> records) {
    TaskContext context = TaskContext.get();
    Waiting waiting = new Waiting(recordsMax, bytesMax, apartNs);
    Reading reading = new Reading(records, waiting, context);
    context.addTaskCompletionListener(new Ending(reading, waiting));
    reading.start();
    return new Packs(waiting);
  }

  static byte[] valueOf(Row record) {
    return (byte[]) record.get(2);
  }

  static long sizeOf(Row record) {
    byte[] value = valueOf(record);
    return RECORD_BYTES + (value == null ? 0 : value.length);
  }

  static byte[] packed(Object[] records) {
    if (records.length == 0) {
      return NONE;
    }
    int bytes = COUNT_BYTES;
    for (int i = 0; i < records.length; i++) {
      byte[] value = valueOf((Row) records[i]);
      bytes += HEAD_BYTES + (value == null ? 0 : value.length);
    }
    ByteBuffer pack = ByteBuffer.allocate(bytes).order(ByteOrder.LITTLE_ENDIAN);
    pack.putLong(records.length);
    for (int i = 0; i < records.length; i++) {
      pack.putLong(((Row) records[i]).getLong(0));
    }
    for (int i = 0; i < records.length; i++) {
      pack.putLong(((Row) records[i]).getLong(1));
    }
    for (int i = 0; i < records.length; i++) {
      byte[] value = valueOf((Row) records[i]);
      pack.putInt(value == null ? -1 : value.length);
    }
    for (int i = 0; i < records.length; i++) {
      byte[] value = valueOf((Row) records[i]);
      if (value != null) {
        pack.put(value);
      }
    }
    return pack.array();
  }

  /** The records that were read and not handed over; bounded. */
  static final class Waiting {
    private static final long MS_NS = 1000000L;
    private final int recordsMax;
    private final long bytesMax;
    private final long fewApartNs;
    private long apartNs;
    private long takenNs;
    private int takenSize = 0;
    private final ArrayDeque<Object> records = new ArrayDeque<Object>();
    private long bytes = 0L;
    private boolean ended = false;
    private boolean closed = false;
    private Throwable error = null;

    Waiting(int recordsMax, long bytesMax, long apartNs) {
      this.recordsMax = recordsMax;
      this.bytesMax = bytesMax;
      this.fewApartNs = apartNs;
      this.apartNs = apartNs;
      this.takenNs = System.nanoTime() - apartNs;
    }

    /** Adds a record when there is room; returns false if nobody takes it any more. */
    synchronized boolean put(Row record) throws InterruptedException {
      while (!closed && isFull()) {
        wait();
      }
      if (closed) {
        return false;
      }
      records.add(record);
      bytes += sizeOf(record);
      if (records.size() == 1 || isFull()) {
        notifyAll();
      }
      return true;
    }

    /** Waits for a record; returns true if those that were sent with it may still come. */
    synchronized boolean awaitFirst() throws InterruptedException {
      boolean waits = records.isEmpty();
      while (records.isEmpty() && !ended) {
        wait();
      }
      return waits && takenSize >= GROUP && restNs() <= 0 && !ended;
    }

    synchronized int size() {
      return records.size();
    }

    private boolean isFull() {
      return records.size() >= recordsMax || bytes >= bytesMax;
    }

    private long restNs() {
      return takenNs + apartNs - System.nanoTime();
    }

    /** Notes the end; error: why there are no more, or null. */
    synchronized void end(Throwable why) {
      ended = true;
      error = why;
      notifyAll();
    }

    /** Has a put that waits return: the task is over. */
    synchronized void close() {
      closed = true;
      notifyAll();
    }

    synchronized boolean isEmpty() {
      return records.isEmpty();
    }

    /** Waits for records and takes them; none: that is the end. Throws why it came. */
    Object[] take() throws Throwable {
      int before = awaitFirst() ? 0 : size();
      for (int i = 0; i < GATHERS && size() > before; i++) {
        before = size();
        LockSupport.parkNanos(GATHER_NS);
      }
      return taken();
    }

    synchronized Object[] taken() throws Throwable {
      for (long ns = restNs(); ns > 0 && !ended && !isFull(); ns = restNs()) {
        wait(ns / MS_NS, (int) (ns % MS_NS));
      }
      takenNs = System.nanoTime();
      takenSize = records.size();
      apartNs = takenSize < MANY ? fewApartNs : 4 * fewApartNs;
      if (records.isEmpty() && error != null) {
        throw error;
      }
      Object[] taken = records.toArray();
      records.clear();
      bytes = 0L;
      notifyAll();
      return taken;
    }
  }

  /** Reads ahead. */
  static final class Reading extends Thread {
    private final Iterator<Row> records;
    private final Waiting waiting;
    private final TaskContext context;

    Reading(Iterator<Row> records, Waiting waiting, TaskContext context) {
      super("streamydb-packing-" + context.taskAttemptId());
      setDaemon(true);
      this.records = records;
      this.waiting = waiting;
      this.context = context;
    }

    public void run() {
      org.apache.spark.TaskContext$.MODULE$.setTaskContext(context);
      Throwable why = null;
      try {
        while (records.hasNext() && waiting.put((Row) records.next())) {
          continue;
        }
      } catch (Throwable error) {
        why = error;
      }
      waiting.end(why);
    }
  }

  /** Ends the thread with its task, before the source is closed. */
  static final class Ending implements TaskCompletionListener {
    private final Reading reading;
    private final Waiting waiting;

    Ending(Reading reading, Waiting waiting) {
      this.reading = reading;
      this.waiting = waiting;
    }

    public void onTaskCompletion(TaskContext context) {
      waiting.close();
      reading.interrupt();
      try {
        reading.join(JOIN_MS);
      } catch (InterruptedException error) {
        Thread.currentThread().interrupt();
      }
    }
  }

  /** The rows. */
  static final class Packs implements Iterator<byte[]> {
    private final Waiting waiting;
    private boolean pushed = true;
    private boolean ended = false;

    Packs(Waiting waiting) {
      this.waiting = waiting;
    }

    public boolean hasNext() {
      return !ended;
    }

    public byte[] next() {
      if (!pushed && waiting.isEmpty()) {
        pushed = true;
        return NONE;
      }
      Object[] taken;
      try {
        taken = waiting.take();
      } catch (RuntimeException error) {
        throw error;
      } catch (Error error) {
        throw error;
      } catch (Throwable error) {
        throw new RuntimeException(error);
      }
      pushed = false;
      ended = taken.length == 0;
      return packed(taken);
    }
  }
}
