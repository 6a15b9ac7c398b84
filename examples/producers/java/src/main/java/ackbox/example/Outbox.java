package ackbox.example;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;

/** One row in the transaction that the task tells of: committed together, or not at all. */
final class Outbox {
    private Outbox() {}

    /** Writes the task into the producer's own PostgreSQL, MySQL or MariaDB, for {@code ackbox relay}. The body is JSON. */
    static void put(Connection connection, String taskNo, String messageCode, String body) throws SQLException {
        run(connection, "insert into ackbox_outbox (task_no, message_code, message_body) values (?, ?, ?)", taskNo, messageCode, body);
    }

    /** Hands the task to an Ackbox that lives in the same PostgreSQL database. The body is JSON. */
    static void enqueue(Connection connection, String taskNo, String messageCode, String body) throws SQLException {
        run(connection, "select ackbox_api.enqueue(task_no => ?, message_code => ?, message_body => ?::text)", taskNo, messageCode, body);
    }

    private static void run(Connection connection, String sql, String... values) throws SQLException {
        if (connection.getAutoCommit()) {
            throw new IllegalStateException("no transaction: the row would be committed by itself, whatever becomes of the work");
        }
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            for (int i = 0; i < values.length; i++) statement.setString(i + 1, values[i]);
            statement.execute();
        }
    }
}
