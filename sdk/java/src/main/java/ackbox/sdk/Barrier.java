package ackbox.sdk;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.time.Instant;
import java.util.Map;

/**
 * Which came first: the transaction of a half message, or the check that asked for it. Both insert the same key into {@code ackbox_barrier}, and a
 * database lets one of them in. So a check answered ROLLED_BACK stays true: the transaction that comes after it finds the row and fails.
 */
public final class Barrier {
  private static final int WAIT_SECONDS = 2;
  private static final int KEPT_DAYS = 30;
  /** A check of an older half message might ask for a row that was deleted: a day less, for clocks that differ. */
  private static final Duration HORIZON = Duration.ofDays(KEPT_DAYS - 1);

  private Barrier() {}

  public enum State {
    COMMITTED,
    ROLLED_BACK,
    UNKNOWN;

    /** What the check of Ackbox is answered with status 200. */
    public String json() {
      return "{\"state\":\"" + name() + "\"}";
    }
  }

  /** The key is in the barrier already. The transaction must not commit. */
  public static final class AlreadyDecided extends RuntimeException {
    AlreadyDecided(String message, Throwable cause) {
      super(message, cause);
    }
  }

  /**
   * The first statement of the transaction that a half message tells of: from here on a check waits for its end. Throws {@link AlreadyDecided}
   * when a check was answered ROLLED_BACK before, or a transaction of this taskNo has committed; the transaction must fail with it.
   */
  public static void prepared(Connection connection, String taskNo) throws SQLException {
    Task.checked(taskNo);
    Sql.insistOnTransaction(connection);
    try {
      Sql.update(connection, "insert into ackbox_barrier (task_no, state) values (?, 'COMMITTED')", taskNo);
    } catch (SQLException error) {
      if (!Sql.isDuplicate(error)) throw error;
      throw new AlreadyDecided(
          "The half message " + taskNo + " is decided: its check was answered ROLLED_BACK, or a transaction has committed it before. This transaction must not commit.",
          error);
    }
  }

  /** Throws unless the key is still there: a transaction that a swallowed error has ended on the server may tell no one at COMMIT. */
  static void stillPrepared(Connection connection, String taskNo) throws SQLException {
    if (stateOf(connection, taskNo) != State.COMMITTED)
      throw new IllegalStateException("The transaction of the half message " + taskNo + " was rolled back by the database while its work went on.");
  }

  /** Answers Ackbox's check. {@code body} is that of its request; check the signature first. Throws IllegalArgumentException for any other body. */
  public static State answerCheck(Connect connect, String body) throws SQLException {
    Map<String, Object> check = Json.object(body);
    Instant preparedAt = Ackbox.timeOf(check.get("preparedAt"));
    if (!(check.get("taskNo") instanceof String taskNo) || preparedAt == null)
      throw new IllegalArgumentException("this is no check of Ackbox: it says its taskNo and preparedAt");
    return answerCheck(connect, taskNo, preparedAt);
  }

  /**
   * {@code connect} must reach the primary. UNKNOWN: the transaction is still under way, or so old that its row may be gone.
   */
  public static State answerCheck(Connect connect, String taskNo, Instant preparedAt) throws SQLException {
    Task.checked(taskNo);
    try {
      return Sql.alone(connect, connection -> {
        if (preparedAt.isAfter(Instant.now().minus(HORIZON))) rollBackUnlessThere(connection, taskNo);
        // A statement of its own: the first one cannot see what was committed while it waited.
        return stateOf(connection, taskNo);
      });
    } catch (SQLException error) {
      if (Sql.isBusy(error)) return State.UNKNOWN;
      throw error;
    }
  }

  /** Deletes rows that no check needs any more: those older than 30 days. Once a day. */
  public static void prune(Connect connect) throws SQLException {
    Sql.prune(connect, isPostgres -> {
      String old = "created_at < now() - interval " + (isPostgres ? "'" + KEPT_DAYS + " days'" : KEPT_DAYS + " day");
      String index = isPostgres ? "" : " force index (ackbox_barrier_created_idx)";
      return new String[] {
        "select task_no from ackbox_barrier" + index + " where " + old + " limit 1000",
        "delete from ackbox_barrier where task_no = ? and " + old
      };
    });
  }

  private static State stateOf(Connection connection, String taskNo) throws SQLException {
    try (PreparedStatement read = connection.prepareStatement("select state from ackbox_barrier where task_no = ?")) {
      Sql.bind(read, taskNo);
      try (ResultSet row = read.executeQuery()) {
        return row.next() ? State.valueOf(row.getString(1)) : State.UNKNOWN;
      }
    }
  }

  private static void rollBackUnlessThere(Connection connection, String taskNo) throws SQLException {
    if (Sql.isPostgres(connection)) {
      // One statement is its own transaction here: the limit ends with it.
      Sql.update(
          connection,
          "insert into ackbox_barrier (task_no, state) select ?, 'ROLLED_BACK' from (select set_config('lock_timeout', '"
              + WAIT_SECONDS
              + "s', true) as s offset 0) l where s is not null on conflict do nothing",
          taskNo);
      return;
    }
    try (Statement statement = connection.createStatement()) {
      String before;
      try (ResultSet limit = statement.executeQuery("select @@session.innodb_lock_wait_timeout")) {
        limit.next();
        before = limit.getString(1);
      }
      statement.execute("set session innodb_lock_wait_timeout = " + WAIT_SECONDS);
      try {
        Sql.update(connection, "insert ignore into ackbox_barrier (task_no, state) values (?, 'ROLLED_BACK')", taskNo);
      } finally {
        statement.execute("set session innodb_lock_wait_timeout = " + before);
      }
    }
  }
}
