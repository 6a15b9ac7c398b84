package ackbox.sdk;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.Instant;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.temporal.ChronoUnit;
import java.util.Locale;
import java.util.Set;
import java.util.function.Function;

/** What JDBC and the two dialects ask of everybody here. Every value goes as text, and is cast by the database. */
final class Sql {
  private Sql() {}

  interface Work<T, E extends Exception> {
    T run(Connection connection) throws E, SQLException;
  }

  static boolean isPostgres(Connection connection) throws SQLException {
    String name = connection.getMetaData().getDatabaseProductName();
    String known = name.toLowerCase(Locale.ROOT);
    if (known.contains("postgres")) return true;
    if (known.contains("mysql") || known.contains("mariadb")) return false;
    throw new SQLException("the SDK knows PostgreSQL, MySQL and MariaDB, and not " + name);
  }

  /** Commits what it wrote, or rolls back and throws. */
  static <T, E extends Exception> T transact(Connect connect, Work<T, E> work) throws E, SQLException {
    return borrow(connect, false, work);
  }

  /** Each statement by itself, committed at its end. */
  static <T, E extends Exception> T alone(Connect connect, Work<T, E> work) throws E, SQLException {
    return borrow(connect, true, work);
  }

  /** A pool gets its connection back as it was: not every one resets it. */
  private static <T, E extends Exception> T borrow(Connect connect, boolean isAutocommit, Work<T, E> work) throws E, SQLException {
    try (Connection connection = connect.open()) {
      boolean before = connection.getAutoCommit();
      connection.setAutoCommit(isAutocommit);
      T result;
      try {
        result = work.run(connection);
        if (!isAutocommit) connection.commit();
      } catch (Throwable error) {
        try {
          if (!isAutocommit) connection.rollback();
          connection.setAutoCommit(before); // not after a failed rollback: it would commit what is left
        } catch (SQLException gone) {
          error.addSuppressed(gone);
        }
        throw error;
      }
      connection.setAutoCommit(before);
      return result;
    }
  }

  /**
   * Deletes a thousand rows at a time, each by its key, until the look finds none. The look locks nothing: a DELETE with a condition alone would read
   * the whole of a small table of MySQL, wait for transactions that are still open, and keep others from writing. {@code statements}: the look, whose
   * first column is the last value of the deletion.
   */
  static void prune(Connect connect, Function<Boolean, String[]> statements, String... values) throws SQLException {
    transact(connect, connection -> {
      String[] texts = statements.apply(isPostgres(connection));
      while (deleteSome(connection, texts, values)) connection.commit();
      return null;
    });
  }

  /** Whether there were any. */
  private static boolean deleteSome(Connection connection, String[] texts, String... values) throws SQLException {
    try (PreparedStatement look = connection.prepareStatement(texts[0]); PreparedStatement delete = connection.prepareStatement(texts[1])) {
      bind(look, values);
      bind(delete, values);
      boolean isAny = false;
      try (ResultSet found = look.executeQuery()) {
        while (found.next()) {
          isAny = true;
          delete.setString(values.length + 1, found.getString(1));
          delete.addBatch();
        }
      }
      connection.commit(); // ends the snapshot: MariaDB deletes no row that has changed since
      if (isAny) delete.executeBatch();
      return isAny;
    }
  }

  static void insistOnTransaction(Connection connection) throws SQLException {
    if (connection.getAutoCommit())
      throw new IllegalStateException("no transaction: the row would be committed by itself, whatever becomes of the work");
  }

  static int update(Connection connection, String text, String... values) throws SQLException {
    try (PreparedStatement statement = connection.prepareStatement(text)) {
      bind(statement, values);
      return statement.executeUpdate();
    }
  }

  static void bind(PreparedStatement statement, String... values) throws SQLException {
    for (int at = 0; at < values.length; at++) statement.setString(at + 1, values[at]);
  }

  /** A conflict, or a lock that was waited for too long: rolled back, and worth another try. */
  static boolean isBusy(Throwable error) {
    return isConflict(error) || hasCode(error, Set.of("55P03"), Set.of(1205));
  }

  /** A deadlock, a failed serialization (1020 of MariaDB is one). */
  static boolean isConflict(Throwable error) {
    return hasCode(error, Set.of("40001", "40P01"), Set.of(1020, 1213));
  }

  /** Libraries wrap the driver's error. */
  private static boolean hasCode(Throwable error, Set<String> states, Set<Integer> codes) {
    for (Throwable each = error; each != null; each = each.getCause())
      if (each instanceof SQLException sql && (states.contains("" + sql.getSQLState()) || codes.contains(sql.getErrorCode()))) return true;
    return false;
  }

  static boolean isDuplicate(SQLException error) {
    return "23505".equals(error.getSQLState()) || error.getErrorCode() == 1062;
  }

  /** As text that the database reads the same in every zone; rounded up to what its columns hold, so that "not before" stays true. */
  static String time(boolean isPostgres, Instant at) {
    Instant cut = at.truncatedTo(ChronoUnit.MICROS);
    Instant whole = cut.equals(at) ? at : cut.plus(1, ChronoUnit.MICROS);
    return isPostgres ? whole.toString() : LocalDateTime.ofInstant(whole, ZoneOffset.UTC).toString().replace('T', ' ');
  }
}
