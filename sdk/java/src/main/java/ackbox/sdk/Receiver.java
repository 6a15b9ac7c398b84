package ackbox.sdk;

import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;

/**
 * Handles each delivery of Ackbox once, in the receiver's own PostgreSQL, MySQL or MariaDB, and brings its receipt in the same transaction. The
 * tables: {@code npx ackbox consumer --print-ddl postgres|mysql}
 */
public final class Receiver {
  private static final int OPEN = 0;
  private static final int DECIDED = -1;
  /** What a row has for a result while its work goes on: no row of another transaction has the same. */
  private static final String UNFINISHED = "\"unfinished %s\"";
  /** The headers of a delivery that are asked for after its signature was checked. */
  private static final List<String> READ =
      List.of(
          "webhook-id", "webhook-timestamp", "ackbox-task-no", "ackbox-message-code", "ackbox-scene-type", "ackbox-attempt", "ackbox-round",
          "ackbox-sequence", "ackbox-out-of-order", "ackbox-forget-after", "ackbox-callback-token", "traceparent");
  private final Connect connect;
  private final String consumer;
  private final Signature signature;
  private final Duration deadline;
  private final Receipts receipts;
  /** null: any. */
  private volatile Duration maxAge;
  private final ExecutorService workers = Executors.newCachedThreadPool(Receiver::daemon);

  /**
   * What was delivered. Only the id, the time and the body are signed. {@code round}: 1, and one more after each redelivery by an operator. {@code
   * headers}: those of Ackbox, by their names in lower case.
   */
  public record Delivery(
      String webhookId, String taskNo, String messageCode, String sceneType, int attempt, int round, String body, Map<String, String> headers) {
    public Delivery(String webhookId, String taskNo, String messageCode, String body) {
      this(webhookId, taskNo, messageCode, "", 1, 1, body, Map.of());
    }

    static Delivery of(Function<String, String> header, byte[] body) {
      Map<String, String> headers = new HashMap<>();
      for (String name : READ) if (header.apply(name) != null) headers.put(name, header.apply(name));
      return new Delivery(
          headers.get("webhook-id"), headers.get("ackbox-task-no"), headers.get("ackbox-message-code"), decoded(headers.getOrDefault("ackbox-scene-type", "")),
          number(headers.get("ackbox-attempt")), number(headers.get("ackbox-round")), new String(body, StandardCharsets.UTF_8), Map.copyOf(headers));
    }

    /** Headers are not signed: a text that is not percent-encoded stays as it is. */
    private static String decoded(String text) {
      try {
        return URLDecoder.decode(text.replace("+", "%2B"), StandardCharsets.UTF_8);
      } catch (IllegalArgumentException wrong) {
        return text;
      }
    }

    private static int number(String text) {
      return text != null && text.matches("[0-9]{1,9}") ? Integer.parseInt(text) : 1;
    }
  }

  /** Runs in the transaction and gives its result as JSON, or null. What it throws rolls back. */
  public interface Work {
    String handle(Connection connection, Delivery delivery) throws Exception;
  }

  /**
   * Not now: answered 503, with Retry-After in whole seconds, an hour at most: Ackbox waits no longer. After a 202 the backoff of the handler alone
   * counts: a receipt has no time.
   */
  public static final class Retry extends RuntimeException {
    final long afterSeconds;

    public Retry(Duration after) {
      super("again in " + after.toMillis() + " ms");
      // Rounded up: 0 would be at once.
      this.afterSeconds = Math.min(3_600, Math.max(0, after.plusNanos(999_999_999).toSeconds()));
    }
  }

  /** Never: answered 410. The delivery ends FAILED, with an alarm; operators read the reason. */
  public static final class Refuse extends RuntimeException {
    public Refuse(String reason) {
      super(reason);
    }
  }

  /** Thrown by {@link #once} before any statement: not from Ackbox, or so old that whether it was handled may be forgotten. */
  public static final class NotTaken extends RuntimeException {
    NotTaken(String why) {
      super(why);
    }
  }

  /** What an HTTP request is answered. */
  public record Answer(int status, Map<String, String> headers, String text) {}

  /** {@code first}: the work was done now, and not before. */
  public record Once(boolean first, String result) {}

  /**
   * {@code consumer}: who handles; two names in one database handle every delivery both. {@code deadline}: when a request is answered although its
   * work is not done; keep it below the downstream's timeout.
   */
  public Receiver(Connect connect, String consumer, List<String> secrets, Ackbox ackbox, Duration deadline) {
    this.connect = connect;
    this.consumer = consumer;
    this.signature = new Signature(secrets);
    this.deadline = deadline;
    this.receipts = new Receipts(connect, consumer, ackbox);
  }

  /**
   * The greatest age of a message that {@link #once} takes, by its signed time. Without it a message may be of any age, because a queue may deliver
   * late. The record of a message is kept for as long. So nobody who may write to the queue can make an old message count again.
   */
  public Receiver maxAge(Duration maxAge) {
    this.maxAge = maxAge;
    return this;
  }

  /** Start one, in every process that writes receipts: {@code new Thread(points.receipts()).start()}. */
  public Receipts receipts() {
    return receipts;
  }

  /**
   * For the message of a queue, inside a transaction of the caller's; acknowledge the message after its commit, a repeat too. A repeat waits for the
   * end of the first, does no work, and gives the stored result. A receipt that is wanted is written into the same transaction. When the work throws,
   * roll back: Spring does so for unchecked exceptions only.
   */
  public Once once(Connection connection, Function<String, String> header, byte[] body, Work work) throws Exception {
    Sql.insistOnTransaction(connection);
    if (!signature.isSigned(header, body)) throw new NotTaken("its signature is not Ackbox's");
    if (Probe.about(header) != null) throw new NotTaken("it is a probe and no delivery: only answer() takes it");
    if (maxAge != null && Instant.now().isAfter(sentAt(header).plus(maxAge))) throw new NotTaken("it was sent longer ago than " + maxAge);
    // `prune` waits for a day, by the clock of the database: the two clocks may differ by half a day.
    if (Instant.now().isAfter(toldForgetAfter(header).plus(Duration.ofHours(12)))) throw new NotTaken("it is too old: whether it was handled may be forgotten");
    return once(connection, header, body, work, () -> true);
  }

  /**
   * What an HTTP request is answered. A 2xx with ackbox-result always follows the commit. {@code header} gives a header, or null. It is asked before
   * this method returns only: work may go on after that, when the container has given the request away.
   */
  public Answer answer(Function<String, String> header, byte[] body, Work work) {
    if (!signature.isValid(header, body)) return new Answer(401, Map.of(), "");
    Map<String, String> headers = new HashMap<>();
    for (String name : READ) headers.put(name, header.apply(name));
    String asked = Probe.about(header);
    return asked == null ? answerBy(headers::get, body, work) : answerProbe(headers::get, asked);
  }

  private Answer answerProbe(Function<String, String> header, String webhookId) {
    try {
      return Probe.answer(connect, consumer, webhookId);
    } catch (Exception error) {
      return failed(header, error);
    }
  }

  private Answer answerBy(Function<String, String> header, byte[] body, Work work) {
    // OPEN, DECIDED (the end of the transaction is the answer), or the status that was answered early.
    AtomicInteger early = new AtomicInteger(OPEN);
    // Nobody else hears what is thrown after an early answer.
    Future<Answer> working = workers.submit(() -> {
      try {
        return transact(header, body, work, early);
      } catch (Throwable error) {
        log(header, error);
        return new Answer(500, Map.of(), "");
      }
    });
    try {
      try {
        return working.get(deadline.toMillis(), TimeUnit.MILLISECONDS);
      } catch (TimeoutException late) {
        int status = header.apply("ackbox-callback-token") == null ? 503 : 202;
        if (early.compareAndSet(OPEN, status))
          return status == 202 ? new Answer(202, Map.of(), "{}") : new Answer(503, Map.of("retry-after", "1"), "");
        return working.get();
      }
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
      return new Answer(500, Map.of(), "");
    } catch (ExecutionException error) {
      throw new IllegalStateException(error);
    }
  }

  /** Once a day. Ackbox sends nothing after forget_after; a day more, for clocks that differ. Receipts are dropped after 90 days. */
  public void prune() throws SQLException {
    Sql.prune(connect, isPostgres -> {
      String old = isPostgres ? "forget_after < now() - interval '1 day'" : "forget_after < utc_timestamp() - interval 1 day";
      String index = isPostgres ? "" : " force index (ackbox_received_forget_idx)";
      return new String[] {
        "select webhook_id from ackbox_received" + index + " where consumer = ? and " + old + " limit 1000",
        "delete from ackbox_received where consumer = ? and webhook_id = ? and " + old
      };
    }, consumer);
    receipts.prune();
  }

  private Answer transact(Function<String, String> header, byte[] body, Work work, AtomicInteger early) throws Exception {
    try {
      Once once =
          Sql.transact(connect, connection ->
              once(connection, header, body, work, () -> !early.compareAndSet(OPEN, DECIDED) && early.get() == 202));
      String text = once.result() == null ? "{}" : once.result();
      return new Answer(200, Map.of("content-type", "application/json", "ackbox-result", "HANDLED"), text);
    } catch (Exception error) {
      // The receipt tells what the answer would have.
      if (!early.compareAndSet(OPEN, DECIDED) && early.get() == 202)
        Sql.transact(connect, connection -> {
          if (error instanceof Refuse) receipts.write(connection, header, "FAILED", error.getMessage());
          else receipts.write(connection, header, "RETRY", null);
          return null;
        });
      return failed(header, error);
    }
  }

  private Once once(Connection connection, Function<String, String> header, byte[] body, Work work, Callable<Boolean> wantsReceipt)
      throws Exception {
    String id = header.apply("webhook-id");
    boolean isPostgres = Sql.isPostgres(connection);
    String mark = String.format(UNFINISHED, UUID.randomUUID());
    boolean first = insert(connection, isPostgres, id, header, mark);
    String result;
    if (first) {
      try {
        result = work.handle(connection, Delivery.of(header, body));
        if (!hasMark(connection, id, mark))
          throw new IllegalStateException("the database has ended this transaction while the work went on: its error must end the work");
      } catch (Throwable error) {
        takeBack(connection, id, mark);
        throw error;
      }
      Sql.update(connection, "update ackbox_received set result = ? where consumer = ? and webhook_id = ?", result, consumer, id);
    } else {
      result = stored(connection, isPostgres, id, header);
    }
    if (header.apply("ackbox-callback-token") != null && wantsReceipt.call()) receipts.write(connection, header, "HANDLED", null);
    return new Once(first, result);
  }

  private boolean insert(Connection connection, boolean isPostgres, String id, Function<String, String> header, String mark)
      throws SQLException {
    String insert = "insert into ackbox_received (consumer, webhook_id, task_no, result, forget_after) values (?, ?, ?, ?, " + time(isPostgres) + ")";
    String[] values = {consumer, id, header.apply("ackbox-task-no"), mark, Sql.time(isPostgres, forgetAfter(header))};
    if (isPostgres) return Sql.update(connection, insert + " on conflict do nothing", values) == 1;
    try {
      return Sql.update(connection, insert, values) == 1;
    } catch (SQLException error) {
      if (!Sql.isDuplicate(error)) throw error; // a duplicate key alone is a repeat
      return false;
    }
  }

  /** A deadlock ends a transaction of MySQL. A work that swallows the error does not know, and what it does afterwards is in no transaction with its row. */
  private boolean hasMark(Connection connection, String id, String mark) throws SQLException {
    String read = "select 1 from ackbox_received where consumer = ? and webhook_id = ? and result = ?";
    try (PreparedStatement statement = connection.prepareStatement(read)) {
      Sql.bind(statement, consumer, id, mark);
      try (ResultSet found = statement.executeQuery()) {
        return found.next();
      }
    }
  }

  /** The work threw. Should its transaction be committed all the same, as Spring does for a checked exception, the delivery must come again. */
  private void takeBack(Connection connection, String id, String mark) {
    try {
      // A look locks nothing: where the transaction is over, another one may have the row by now.
      if (hasMark(connection, id, mark)) Sql.update(connection, "delete from ackbox_received where consumer = ? and webhook_id = ?", consumer, id);
    } catch (SQLException ended) {
      // The error of the work has ended the transaction: nothing of it will be committed.
    }
  }

  private String stored(Connection connection, boolean isPostgres, String id, Function<String, String> header) throws SQLException {
    String until = Sql.time(isPostgres, forgetAfter(header));
    String read = "select result, forget_after < " + time(isPostgres) + " from ackbox_received where consumer = ? and webhook_id = ?";
    // A locking read sees what was committed after this transaction began; shared: two repeats would deadlock.
    try (PreparedStatement statement = connection.prepareStatement(read + (isPostgres ? "" : " lock in share mode"))) {
      Sql.bind(statement, until, consumer, id);
      try (ResultSet found = statement.executeQuery()) {
        if (!found.next()) throw new SQLException("the row came and went", "40001");
        // An operator delivers it again: it is to be remembered for longer.
        if (found.getBoolean(2)) {
          String later = "update ackbox_received set forget_after = " + time(isPostgres) + " where consumer = ? and webhook_id = ?";
          Sql.update(connection, later, until, consumer, id);
        }
        String result = found.getString(1);
        // Unfinished: the work has committed by itself, and its process died then.
        return result != null && result.matches(String.format(UNFINISHED, "[0-9a-f-]{36}")) ? null : result;
      }
    }
  }

  private static String time(boolean isPostgres) {
    return isPostgres ? "cast(? as timestamptz)" : "?";
  }

  /** The header is not signed: it must not end the record of a message that would still be taken. */
  private Instant forgetAfter(Function<String, String> header) {
    Instant told = toldForgetAfter(header);
    if (maxAge == null) return told;
    Instant least = sentAt(header).plus(maxAge);
    return told.isBefore(least) ? least : told;
  }

  private static Instant sentAt(Function<String, String> header) {
    return Instant.ofEpochSecond(Long.parseLong(header.apply("webhook-timestamp")));
  }

  private static Instant toldForgetAfter(Function<String, String> header) {
    Instant given = Ackbox.timeOf(header.apply("ackbox-forget-after"));
    return given == null ? Instant.now().plus(Duration.ofDays(30)) : given;
  }

  private static Answer failed(Function<String, String> header, Exception error) {
    if (error instanceof Refuse) return new Answer(410, Map.of(), "{\"reason\":" + Json.quote("" + error.getMessage()) + "}");
    if (error instanceof Retry retry) return new Answer(503, Map.of("retry-after", "" + retry.afterSeconds), "");
    if (Sql.isBusy(error)) return new Answer(503, Map.of("retry-after", "1"), "");
    log(header, error);
    return new Answer(500, Map.of(), "");
  }

  private static void log(Function<String, String> header, Throwable error) {
    System.getLogger("ackbox.sdk").log(System.Logger.Level.ERROR, "the work of task " + header.apply("ackbox-task-no") + " has failed", error);
  }

  private static Thread daemon(Runnable work) {
    Thread thread = new Thread(work, "ackbox-receiver");
    thread.setDaemon(true);
    return thread;
  }
}
