package streamydb;

import java.io.Serializable;
import java.util.ArrayDeque;
import java.util.Iterator;

import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.util.TaskCompletionListener;

/**
 * Packs the records of a partition: each row holds the records that have come since the last one.
 *
 * A thread of the task reads ahead. A row is one array of records; an empty one follows when none
 * waits, because the operator before Python hands a row on only when it has the next one.
 *
 * Janino compiles this text: it knows no lambdas, and no type arguments at calls.
 */
public final class RecordPacking implements MapPartitionsFunction<Row, Row>, Serializable {
  private static final long serialVersionUID = 1L;
  private static final int RECORD_BYTES = 100;
  private static final long JOIN_MS = 10000L;

  private final int recordsMax;
  private final long bytesMax;

  /** recordsMax, bytesMax: of one row; the same again may wait. One record is always taken. */
  public RecordPacking(int recordsMax, long bytesMax) {
    this.recordsMax = recordsMax;
    this.bytesMax = bytesMax;
  }

  public Iterator<Row> call(Iterator<Row> records) {
    TaskContext context = TaskContext.get();
    Waiting waiting = new Waiting(recordsMax, bytesMax);
    Reading reading = new Reading(records, waiting, context);
    context.addTaskCompletionListener(new Ending(reading, waiting));
    reading.start();
    return new Packs(waiting);
  }

  static long sizeOf(Row record) {
    int last = record.length() - 1;
    return RECORD_BYTES + (record.isNullAt(last) ? 0 : ((byte[]) record.get(last)).length);
  }

  /** The records that were read and not handed over; bounded. */
  static final class Waiting {
    private final int recordsMax;
    private final long bytesMax;
    private final ArrayDeque<Object> records = new ArrayDeque<Object>();
    private long bytes = 0L;
    private boolean ended = false;
    private boolean closed = false;
    private Throwable error = null;

    Waiting(int recordsMax, long bytesMax) {
      this.recordsMax = recordsMax;
      this.bytesMax = bytesMax;
    }

    /** Adds a record when there is room; returns false if nobody takes it any more. */
    synchronized boolean put(Row record) throws InterruptedException {
      while (!closed && (records.size() >= recordsMax || bytes >= bytesMax)) {
        wait();
      }
      if (closed) {
        return false;
      }
      records.add(record);
      bytes += sizeOf(record);
      if (records.size() == 1) {
        notifyAll();
      }
      return true;
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
    synchronized Object[] take() throws Throwable {
      while (records.isEmpty() && !ended) {
        wait();
      }
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
  static final class Packs implements Iterator<Row> {
    private static final Object[] NONE = new Object[0];
    private final Waiting waiting;
    private boolean pushed = true;
    private boolean ended = false;

    Packs(Waiting waiting) {
      this.waiting = waiting;
    }

    public boolean hasNext() {
      return !ended;
    }

    public Row next() {
      if (!pushed && waiting.isEmpty()) {
        pushed = true;
        return row(NONE);
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
      return row(taken);
    }

    private static Row row(Object[] records) {
      return RowFactory.create(new Object[] {records});
    }
  }
}
