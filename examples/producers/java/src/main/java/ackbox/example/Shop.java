package ackbox.example;

import ackbox.sdk.Outbox;
import ackbox.sdk.Task;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.sql.Statement;

/** Plain JDBC. Pays order 1 and order 2; the card of order 2 is refused after its row was written. Usage: Shop outbox|enqueue JDBC_URL */
public final class Shop {
    static final String PAY = "update account set balance = balance - 7 where id = 1";
    static final String BODY = "{\"note\": \"né à Zürich, 支付\", \"total\": 7.00}";

    public static void main(String[] args) throws SQLException {
        try (Connection connection = DriverManager.getConnection(args[1])) {
            try {
                put(connection, args[0], "java-0");
            } catch (IllegalStateException refused) {
                System.out.println("refused: " + refused.getMessage());
            }
            connection.setAutoCommit(false);
            pay(connection, args[0], "java-1", true);
            try {
                pay(connection, args[0], "java-2", false);
            } catch (IllegalStateException refused) {
                System.out.println("refused: " + refused.getMessage());
            }
        }
    }

    private static void pay(Connection connection, String way, String taskNo, boolean isCardGood) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.executeUpdate(PAY);
            put(connection, way, taskNo);
            if (!isCardGood) throw new IllegalStateException("the card was refused");
            connection.commit();
        } catch (SQLException | RuntimeException error) {
            connection.rollback();
            throw error;
        }
    }

    private static void put(Connection connection, String way, String taskNo) throws SQLException {
        Task task = Task.of("order.paid", BODY).taskNo(taskNo);
        if (way.equals("enqueue")) Outbox.enqueue(connection, task);
        else Outbox.put(connection, task);
    }
}
