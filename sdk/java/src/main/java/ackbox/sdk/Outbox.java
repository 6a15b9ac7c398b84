package ackbox.sdk;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.util.List;
import java.util.function.Function;
import java.util.stream.Collectors;

/** One row in the transaction that the task tells of: committed together, or not at all. A connection outside a transaction is refused. */
public final class Outbox {
  /** Of MariaDB. */
  private static final int CONSTRAINT_FAILED = 4025;

  private Outbox() {}

  /**
   * Writes the task into {@code ackbox_outbox} of the producer's own PostgreSQL, MySQL or MariaDB, for {@code ackbox relay}. The tables: {@code
   * npx ackbox relay --print-ddl postgres|mysql}. Gives the taskNo.
   */
  public static String put(Connection connection, Task task) throws SQLException {
    Sql.insistOnTransaction(connection);
    boolean isPostgres = Sql.isPostgres(connection);
    String quote = isPostgres ? "\"" : "`";
    List<Task.Column> columns = task.columns(isPostgres);
    String names = joined(columns, each -> quote + each.name() + quote);
    String marks = joined(columns, each -> isPostgres ? "cast(? as " + each.type() + ")" : "?");
    try {
      Sql.update(connection, "insert into ackbox_outbox (" + names + ") values (" + marks + ")", values(columns));
    } catch (SQLException failed) {
      if (failed.getErrorCode() != CONSTRAINT_FAILED || !task.isDeeper(31)) throw failed;
      throw new SQLException(
          "ackbox_outbox of this MariaDB takes JSON of at most 31 levels, as Ackbox 1.0 made it, and Ackbox takes 64."
              + " `npx ackbox relay --print-ddl mysql` prints the `alter table` that ends this.",
          failed.getSQLState(),
          failed.getErrorCode(),
          failed);
    }
    return task.taskNo();
  }

  /**
   * Hands the task to an Ackbox that lives in the same PostgreSQL database. A role needs {@code ackbox outbox grant ROLE} once. Gives the
   * taskNo. After the commit {@link Ackbox#nudge} makes Ackbox look at once.
   */
  public static String enqueue(Connection connection, Task task) throws SQLException {
    Sql.insistOnTransaction(connection);
    if (!Sql.isPostgres(connection))
      throw new IllegalStateException("enqueue needs the PostgreSQL database that Ackbox is in: use put, and run `ackbox relay`");
    for (String member : List.of("after", "uniqueBiz"))
      if (task.has(member)) throw new IllegalArgumentException("enqueue takes no " + member + ": POST the task, or use put");
    List<Task.Column> columns = task.columns(true);
    String arguments =
        joined(columns, each ->
            each.name().equals("delay_ms")
                ? "delay => cast(? as float8) * interval '1 millisecond'"
                : each.name() + " => cast(? as " + each.type() + ")");
    try (PreparedStatement statement = connection.prepareStatement("select ackbox_api.enqueue(" + arguments + ")")) {
      Sql.bind(statement, values(columns));
      statement.execute();
    }
    return task.taskNo();
  }

  private static String joined(List<Task.Column> columns, Function<Task.Column, String> each) {
    return columns.stream().map(each).collect(Collectors.joining(", "));
  }

  private static String[] values(List<Task.Column> columns) {
    return columns.stream().map(Task.Column::value).toArray(String[]::new);
  }
}
