package ackbox.sdk;

import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.StringJoiner;
import java.util.function.Function;

/** Receipts, written in the transaction of the work and sent until Ackbox has them. */
public final class Receipts implements Runnable {
  private static final System.Logger LOG = System.getLogger("ackbox.sdk");
  /** Longer than it takes to send one: who took it has died. */
  private static final long LEASE_MS = 30_000;
  private static final long LONGEST_PAUSE_MS = 30_000;
  private static final int LOOKED = 10;
  private static final int LONGEST_REASON = 1_000;
  private final Connect connect;
  private final String consumer;
  private final Ackbox ackbox;

  public Receipts(Connect connect, String consumer, Ackbox ackbox) {
    this.connect = connect;
    this.consumer = consumer;
    this.ackbox = ackbox;
  }

  /**
   * For work that goes on after the delivery was answered 202: in the transaction that ends it. {@code header} gives those of the delivery. {@code
   * result}: HANDLED, RETRY, FAILED or PROCESSING. {@code reason} may be null; it is cut at 1,000 characters.
   */
  public void write(Connection connection, Function<String, String> header, String result, String reason) throws SQLException {
    Sql.insistOnTransaction(connection);
    String receipt =
        String.format(
            "{\"taskNo\":%s,\"messageCode\":%s,\"result\":%s%s}",
            Json.quote(header.apply("ackbox-task-no")),
            Json.quote(header.apply("ackbox-message-code")),
            Json.quote(result),
            reason == null ? "" : ",\"reason\":" + Json.quote(shortened(reason)));
    Sql.update(
        connection,
        "insert into ackbox_receipt_outbox (consumer, callback_url, callback_token, receipt) values (?, ?, ?, ?)",
        consumer,
        ackbox.callback(),
        header.apply("ackbox-callback-token"),
        receipt);
  }

  /** Ackbox refuses the receipt if its reason is longer, or has NUL or half a surrogate pair. UTF-8 has no halves: they become question marks. */
  static String shortened(String reason) {
    String cut = reason.substring(0, Math.min(reason.length(), LONGEST_REASON)).replace('\0', '\uFFFD');
    return new String(cut.getBytes(StandardCharsets.UTF_8), StandardCharsets.UTF_8);
  }

  /** Sends receipts until the thread is interrupted. Any number of processes may run it. */
  @Override
  public void run() {
    int failures = 0;
    while (!Thread.currentThread().isInterrupted()) {
      long pauseMs = 200;
      try {
        while (!Thread.currentThread().isInterrupted() && sendDue()) failures = 0;
        failures = 0;
      } catch (Exception away) {
        failures++;
        // Of failures in a row the 1st, 10th, 100th are told: the database may be away for hours.
        if (String.valueOf(failures).matches("10*"))
          LOG.log(System.Logger.Level.WARNING, "receipts could not be sent: " + away.getMessage());
        pauseMs = Math.min(LONGEST_PAUSE_MS, 1_000L << Math.min(failures - 1, 10));
      }
      try {
        Thread.sleep(pauseMs);
      } catch (InterruptedException stopped) {
        return;
      }
    }
  }

  /** Deletes receipts older than 90 days: their tokens are no longer valid. */
  void prune() throws SQLException {
    Sql.prune(connect, isPostgres -> {
      String old = isPostgres ? "created_at < now() - interval '90 days'" : "created_at < utc_timestamp() - interval 90 day";
      String id = isPostgres ? "cast(? as bigint)" : "?";
      return new String[] {
        "select id from ackbox_receipt_outbox where consumer = ? and " + old + " order by id limit 1000",
        "delete from ackbox_receipt_outbox where consumer = ? and id = " + id + " and " + old
      };
    }, consumer);
  }

  private record Due(long id, String token, String receipt, int tries) {}

  private boolean sendDue() throws SQLException {
    Due due = claim();
    if (due == null) return false;
    // To the address we know: headers are not signed, so one in a header is no proof.
    String problem = ackbox.receiptProblem(due.token, due.receipt);
    // Every tenth failure is told: Ackbox may only be restarting, and a wrong address must not stay unnoticed.
    if (problem != null && (due.tries + 1) % 10 == 0) LOG.log(System.Logger.Level.WARNING, problem + ". It is sent again");
    Sql.alone(
        connect,
        connection ->
            problem == null
                ? Sql.update(connection, "delete from ackbox_receipt_outbox where id = " + due.id)
                : putOff(connection, due, Math.min(60_000, 250L << Math.min(due.tries, 10))));
    return true;
  }

  /** The receipt that is due first, which others leave alone for the lease. Null: there is none, or others have them. */
  private Due claim() throws SQLException {
    try {
      return Sql.transact(connect, this::claim);
    } catch (SQLException error) {
      // Two claims at the same time can conflict. The next claim is soon enough.
      if (Sql.isConflict(error)) return null;
      throw error;
    }
  }

  private Due claim(Connection connection) throws SQLException {
    boolean isPostgres = Sql.isPostgres(connection);
    String of = "select id, callback_token, receipt, tries from ackbox_receipt_outbox ";
    String due = " where consumer = ? and next_try_at <= " + now(isPostgres) + " order by next_try_at limit ";
    if (isPostgres) return claim(connection, of + due + "1 for update skip locked", consumer);
    // MySQL looks without a lock, and locks by number then: a locking look at a small table reads all of it, waits for receipts of transactions that
    // are still open, and keeps others from writing theirs. The commit ends the snapshot: MariaDB locks no row that has changed since.
    StringJoiner ids = new StringJoiner(", ", "(", ")").setEmptyValue("");
    try (PreparedStatement look = connection.prepareStatement("select id from ackbox_receipt_outbox" + due + LOOKED)) {
      Sql.bind(look, consumer);
      try (ResultSet found = look.executeQuery()) {
        while (found.next()) ids.add(found.getString(1));
      }
    }
    connection.commit();
    if (ids.length() == 0) return null;
    return claim(
        connection,
        of + "force index (primary) where id in " + ids + " and next_try_at <= " + now(false) + " limit 1 for update skip locked");
  }

  private Due claim(Connection connection, String text, String... values) throws SQLException {
    try (PreparedStatement look = connection.prepareStatement(text)) {
      Sql.bind(look, values);
      try (ResultSet row = look.executeQuery()) {
        if (!row.next()) return null;
        Due due = new Due(row.getLong(1), row.getString(2), row.getString(3), row.getInt(4));
        putOff(connection, due, LEASE_MS);
        return due;
      }
    }
  }

  private static int putOff(Connection connection, Due due, long pauseMs) throws SQLException {
    boolean isPostgres = Sql.isPostgres(connection);
    int tries = due.tries + 1;
    String later = isPostgres ? " + interval '" + pauseMs + " ms'" : " + interval " + pauseMs * 1_000 + " microsecond";
    return Sql.update(
        connection, "update ackbox_receipt_outbox set tries = " + tries + ", next_try_at = " + now(isPostgres) + later + " where id = " + due.id);
  }

  private static String now(boolean isPostgres) {
    return isPostgres ? "clock_timestamp()" : "utc_timestamp(6)";
  }
}
