package ackbox.example;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/**
 * Handles each delivery of Ackbox once, in the receiver's own PostgreSQL, MySQL or MariaDB: to copy. It needs JDBC and the JDK (17 or newer).
 * The tables: npx ackbox consumer --print-ddl postgres|mysql
 */
public class Received {
  /** Opens a connection; it is set to autoCommit false here. */
  public interface Connect {
    Connection open() throws SQLException;
  }

  /** Runs in the transaction and gives its result as JSON. What it throws rolls back. */
  public interface Work {
    String handle(Connection connection, String body) throws Exception;
  }

  /** Not now: answered 503, with Retry-After. */
  public static class Retry extends Exception {
    final int afterSeconds;

    public Retry(int afterSeconds) {
      super("again in " + afterSeconds + " s");
      this.afterSeconds = afterSeconds;
    }
  }

  /** Never: answered 410. The delivery ends FAILED, with an alarm; operators read the reason. */
  public static class Refuse extends Exception {
    public Refuse(String reason) {
      super(reason);
    }
  }

  public record Answer(int status, Map<String, String> headers, String text) {}

  public record Once(boolean first, String result) {}

  static final long TOLERANCE_S = 300;
  private static final int OPEN = 0;
  private static final int DECIDED = -1;
  private final Connect connect;
  private final boolean isPostgres;
  private final String consumer;
  private final List<byte[]> keys;
  private final URI callback;
  private final long deadlineMs;
  private final ExecutorService workers = Executors.newCachedThreadPool(Received::daemon);
  private final HttpClient client =
      HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(Duration.ofSeconds(5)).build();

  /** `secrets`: two during a rotation. */
  public Received(
      Connect connect, boolean isPostgres, String consumer, List<String> secrets, String ackboxUrl, long deadlineMs) {
    this.connect = connect;
    this.isPostgres = isPostgres;
    this.consumer = consumer;
    this.keys = secrets.stream().map(one -> Base64.getDecoder().decode(one.replaceFirst("^whsec_", ""))).toList();
    this.callback = URI.create(ackboxUrl + "/callback");
    this.deadlineMs = deadlineMs;
  }

  /** Standard Webhooks: HMAC-SHA256 over id.timestamp.body, the very bytes. None of this asks the database. */
  public boolean verify(Function<String, String> header, byte[] body) {
    String id = header.apply("webhook-id");
    String timestamp = header.apply("webhook-timestamp");
    String signatures = header.apply("webhook-signature");
    if (id == null || timestamp == null || signatures == null || !timestamp.matches("[0-9]{1,12}")) return false;
    if (Math.abs(Instant.now().getEpochSecond() - Long.parseLong(timestamp)) > TOLERANCE_S) return false;
    for (byte[] key : keys) {
      byte[] right;
      try {
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(key, "HmacSHA256"));
        mac.update((id + "." + timestamp + ".").getBytes(StandardCharsets.UTF_8));
        right = ("v1," + Base64.getEncoder().encodeToString(mac.doFinal(body))).getBytes(StandardCharsets.UTF_8);
      } catch (GeneralSecurityException error) {
        throw new IllegalStateException(error);
      }
      for (String given : signatures.split(" "))
        if (MessageDigest.isEqual(given.getBytes(StandardCharsets.UTF_8), right)) return true;
    }
    return false;
  }

  /** Inside a transaction. A repeat waits for the end of the first, does no work, and gives the stored result. */
  public Once once(
      Connection connection, Function<String, String> header, byte[] body, Work work, Callable<Boolean> wantsReceipt)
      throws Exception {
    String id = header.apply("webhook-id");
    boolean first = insert(connection, id, header);
    String result;
    if (first) {
      result = work.handle(connection, new String(body, StandardCharsets.UTF_8));
      update(connection, "update ackbox_received set result = ? where consumer = ? and webhook_id = ?", result, consumer, id);
    } else {
      // A locking read sees what was committed after this transaction began; shared: two repeats would deadlock.
      String read = "select result, forget_after < " + time() + " from ackbox_received where consumer = ? and webhook_id = ?";
      try (PreparedStatement statement = connection.prepareStatement(read + (isPostgres ? "" : " lock in share mode"))) {
        bind(statement, forgetAfter(header), consumer, id);
        try (ResultSet found = statement.executeQuery()) {
          if (!found.next()) throw new SQLException("the row came and went", "40001");
          result = found.getString(1);
          // An operator delivers it again.
          if (found.getBoolean(2))
            update(connection, "update ackbox_received set forget_after = " + time() + " where consumer = ? and webhook_id = ?",
                forgetAfter(header), consumer, id);
        }
      }
    }
    if (header.apply("ackbox-callback-token") != null && wantsReceipt.call())
      writeReceipt(connection, header, "\"HANDLED\"");
    return new Once(first, result);
  }

  /** What an HTTP request is answered. A 2xx with ackbox-result always follows the commit. */
  public Answer answer(Function<String, String> header, byte[] body, Work work) {
    if (!verify(header, body)) return new Answer(401, Map.of(), "");
    // OPEN, DECIDED (the end of the transaction is the answer), or the status that was answered early.
    AtomicInteger early = new AtomicInteger(OPEN);
    Future<Answer> working = workers.submit(() -> transact(header, body, work, early));
    try {
      return working.get(deadlineMs, TimeUnit.MILLISECONDS);
    } catch (TimeoutException late) {
      int status = header.apply("ackbox-callback-token") == null ? 503 : 202;
      if (early.compareAndSet(OPEN, status))
        return status == 202 ? new Answer(202, Map.of(), "{}") : new Answer(503, Map.of("retry-after", "1"), "");
      try {
        return working.get();
      } catch (ExecutionException | InterruptedException error) {
        return new Answer(500, Map.of(), "");
      }
    } catch (ExecutionException | InterruptedException error) {
      error.printStackTrace();
      return new Answer(500, Map.of(), "");
    }
  }

  private Answer transact(Function<String, String> header, byte[] body, Work work, AtomicInteger early) throws SQLException {
    try (Connection connection = connect.open()) {
      connection.setAutoCommit(false);
      try {
        Once once = once(connection, header, body, work, () -> !early.compareAndSet(OPEN, DECIDED) && early.get() == 202);
        connection.commit();
        String text = once.result() == null ? "{}" : once.result();
        return new Answer(200, Map.of("content-type", "application/json", "ackbox-result", "HANDLED"), text);
      } catch (Exception error) {
        connection.rollback();
        Answer answer = failed(error);
        // The receipt tells what the answer would have.
        if (!early.compareAndSet(OPEN, DECIDED) && early.get() == 202) {
          writeReceipt(connection, header, error instanceof Refuse ? "\"FAILED\",\"reason\":" + quoted(error.getMessage()) : "\"RETRY\"");
          connection.commit();
        }
        return answer;
      }
    }
  }

  private static Answer failed(Exception error) {
    if (error instanceof Refuse) return new Answer(410, Map.of(), "{\"reason\":" + quoted(error.getMessage()) + "}");
    if (error instanceof Retry retry) return new Answer(503, Map.of("retry-after", "" + retry.afterSeconds), "");
    if (error instanceof SQLException sql && isBusy(sql)) return new Answer(503, Map.of("retry-after", "1"), "");
    error.printStackTrace();
    return new Answer(500, Map.of(), "");
  }

  /** A deadlock, a failed serialization, a lock that was waited for too long: rolled back, and worth another try. */
  static boolean isBusy(SQLException error) {
    return Set.of("40001", "40P01", "55P03").contains("" + error.getSQLState()) || error.getErrorCode() == 1205 || error.getErrorCode() == 1213;
  }

  private boolean insert(Connection connection, String id, Function<String, String> header) throws SQLException {
    String insert = "insert into ackbox_received (consumer, webhook_id, task_no, forget_after) values (?, ?, ?, " + time() + ")";
    String taskNo = header.apply("ackbox-task-no");
    if (isPostgres) return update(connection, insert + " on conflict do nothing", consumer, id, taskNo, forgetAfter(header)) == 1;
    try {
      return update(connection, insert, consumer, id, taskNo, forgetAfter(header)) == 1;
    } catch (SQLException error) {
      if (error.getErrorCode() != 1062) throw error; // a duplicate key alone is a repeat
      return false;
    }
  }

  private void writeReceipt(Connection connection, Function<String, String> header, String result) throws SQLException {
    // Both are plain names (letters, digits and . _ : -): nothing in them needs escaping.
    String receipt =
        String.format("{\"taskNo\":\"%s\",\"messageCode\":\"%s\",\"result\":%s}",
            header.apply("ackbox-task-no"), header.apply("ackbox-message-code"), result);
    update(connection, "insert into ackbox_receipt_outbox (consumer, callback_url, callback_token, receipt) values (?, ?, ?, ?)",
        consumer, callback.toString(), header.apply("ackbox-callback-token"), receipt);
  }

  /** Sends receipts for ever. Any number of processes may run it. */
  public void run() {
    for (;; sleep(200)) {
      try {
        while (sendDue()) {}
      } catch (SQLException away) {
        System.err.println("Received: " + away.getMessage());
        sleep(1_000);
      }
    }
  }

  private boolean sendDue() throws SQLException {
    String now = isPostgres ? "clock_timestamp()" : "utc_timestamp(6)";
    try (Connection connection = connect.open()) {
      connection.setAutoCommit(false);
      try (PreparedStatement look =
          connection.prepareStatement(
              "select id, callback_token, receipt, tries from ackbox_receipt_outbox where consumer = ? and next_try_at <= "
                  + now + " order by next_try_at limit 1 for update skip locked")) {
        bind(look, consumer);
        try (ResultSet row = look.executeQuery()) {
          if (!row.next()) return false;
          // While it is sent the row is locked: nobody else sends it.
          long id = row.getLong(1);
          if (isSent(row.getString(2), row.getString(3)))
            update(connection, "delete from ackbox_receipt_outbox where id = " + id);
          else {
            long pauseMs = Math.min(60_000, 250L << Math.min(row.getInt(4), 10));
            String later = now + (isPostgres ? " + interval '" + pauseMs + " ms'" : " + interval " + pauseMs * 1_000 + " microsecond");
            update(connection, "update ackbox_receipt_outbox set tries = tries + 1, next_try_at = " + later + " where id = " + id);
          }
        }
      }
      connection.commit();
      return true;
    }
  }

  /** Also true for what Ackbox has refused for good, and will never take. */
  private boolean isSent(String token, String receipt) {
    HttpRequest request =
        HttpRequest.newBuilder(callback)
            .timeout(Duration.ofSeconds(10))
            .header("content-type", "application/json")
            .header("ackbox-callback-token", token)
            .POST(HttpRequest.BodyPublishers.ofString(receipt))
            .build();
    try {
      int status = client.send(request, HttpResponse.BodyHandlers.discarding()).statusCode();
      return status < 500 && status != 429;
    } catch (IOException | InterruptedException away) {
      return false;
    }
  }

  /** Once a day. Ackbox sends nothing after forget_after; a day more, for clocks that differ. */
  public void prune() throws SQLException {
    String old = isPostgres ? "now() - interval '1 day'" : "utc_timestamp() - interval 1 day";
    try (Connection connection = connect.open()) {
      update(connection, "delete from ackbox_received where consumer = ? and forget_after < " + old, consumer);
    }
  }

  private String time() {
    return isPostgres ? "cast(? as timestamptz)" : "?";
  }

  /** As text that the database reads the same in every zone. */
  private String forgetAfter(Function<String, String> header) {
    String given = header.apply("ackbox-forget-after");
    Instant at = given == null ? Instant.now().plus(Duration.ofDays(30)) : Instant.parse(given);
    return isPostgres ? at.toString() : LocalDateTime.ofInstant(at, ZoneOffset.UTC).toString().replace('T', ' ');
  }

  private static int update(Connection connection, String text, String... values) throws SQLException {
    try (PreparedStatement statement = connection.prepareStatement(text)) {
      bind(statement, values);
      return statement.executeUpdate();
    }
  }

  private static void bind(PreparedStatement statement, String... values) throws SQLException {
    for (int at = 0; at < values.length; at++) statement.setString(at + 1, values[at]);
  }

  private static String quoted(String text) {
    return '"' + ("" + text).replace("\\", "\\\\").replace("\"", "\\\"").replaceAll("\\p{Cntrl}", " ") + '"';
  }

  private static void sleep(long ms) {
    try {
      Thread.sleep(ms);
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
    }
  }

  private static Thread daemon(Runnable work) {
    Thread thread = new Thread(work);
    thread.setDaemon(true);
    return thread;
  }
}
