// Handles the message of a queue twice, then messages that it must refuse. Usage: java -cp … Once.java JDBC_URL SECRET BODY HEADER=VALUE…

import ackbox.sdk.Ackbox;
import ackbox.sdk.Barrier;
import ackbox.sdk.Receiver;
import java.io.IOException;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.Statement;
import java.time.Duration;
import java.time.Instant;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

public class Once {
  static int opened;

  public static void main(String[] args) throws Exception {
    Map<String, String> headers = new HashMap<>();
    Arrays.stream(args).skip(3).forEach(each -> headers.put(each.split("=", 2)[0], each.split("=", 2)[1]));
    Receiver points =
        new Receiver(
            () -> {
              opened++;
              return DriverManager.getConnection(args[0]);
            }, "points", List.of(args[1]), new Ackbox("http://127.0.0.1:1", null), Duration.ofSeconds(8));
    try (Connection connection = DriverManager.getConnection(args[0])) {
      take(points, connection, headers, args[2]);
      connection.setAutoCommit(false);
      // As the server does at a deadlock, whose error this work ignores.
      take(points, connection, headers, args[2], (own, delivery) -> {
        try (Statement statement = own.createStatement()) {
          statement.execute("rollback");
        }
        return null;
      });
      // Commits after a checked exception, as Spring does.
      try {
        points.once(connection, headers::get, args[2].getBytes(StandardCharsets.UTF_8), (own, delivery) -> {
          throw new IOException("the warehouse is away");
        });
      } catch (IOException thrown) {
        System.out.println("IOException");
        connection.commit();
      }
      take(points, connection, headers, args[2]);
      take(points, connection, headers, args[2]);
      take(points, connection, headers, args[2] + " ");
      headers.put("ackbox-forget-after", Instant.now().minus(Duration.ofHours(13)).toString());
      take(points, connection, headers, args[2]);
      prune(points, connection, args[0]);
      unchanged(connection);
    }
  }

  /** Old rows are removed, although another transaction is still open. */
  static void prune(Receiver points, Connection connection, String url) throws Exception {
    try (Connection other = DriverManager.getConnection(url); Statement own = connection.createStatement(); Statement open = other.createStatement()) {
      own.executeUpdate("update ackbox_received set forget_after = '2026-01-01'");
      own.executeUpdate(
          "insert into ackbox_receipt_outbox (consumer, callback_url, callback_token, receipt, created_at) values ('points', '', '', '{}', '2026-01-01')");
      connection.commit();
      other.setAutoCommit(false);
      open.executeUpdate("insert into ackbox_received (consumer, webhook_id, task_no, forget_after) values ('points', 'open', 'open', '2026-01-01')");
      opened = 0;
      points.prune();
      own.execute("select count(*) from ackbox_received");
      own.getResultSet().next();
      System.out.println("left " + own.getResultSet().getInt(1) + ", connections " + opened);
      other.rollback();
    }
  }

  /** A failed check (here without its table) leaves the pool's connection unchanged. */
  static void unchanged(Connection connection) throws Exception {
    Connection pooled = (Connection) Proxy.newProxyInstance(Once.class.getClassLoader(), new Class<?>[] {Connection.class}, (proxy, method, args) ->
        method.getName().equals("close") ? null : method.invoke(connection, args));
    try {
      Barrier.answerCheck(() -> pooled, "order-1", Instant.now());
    } catch (Exception failed) {
      System.out.println("autocommit " + connection.getAutoCommit());
    }
  }

  static void take(Receiver points, Connection connection, Map<String, String> headers, String body) throws Exception {
    take(points, connection, headers, body, (own, delivery) -> {
      try (Statement statement = own.createStatement()) {
        statement.executeUpdate("update points set granted = granted + 7 where id = 1");
      }
      return "{\"for\":\"" + delivery.taskNo() + "\"}";
    });
  }

  static void take(Receiver points, Connection connection, Map<String, String> headers, String body, Receiver.Work work) throws Exception {
    try {
      var once = points.once(connection, headers::get, body.getBytes(StandardCharsets.UTF_8), work);
      connection.commit();
      System.out.println(once.first() + " " + once.result());
    } catch (IllegalStateException | Receiver.NotTaken refused) {
      System.out.println(refused.getClass().getSimpleName());
      if (!connection.getAutoCommit()) connection.rollback();
    }
  }
}
