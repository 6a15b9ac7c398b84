// Handles the message of a queue twice, then messages that it must refuse. Usage: java -cp … Once.java JDBC_URL SECRET BODY HEADER=VALUE…

import ackbox.sdk.Ackbox;
import ackbox.sdk.Barrier;
import ackbox.sdk.Connect;
import ackbox.sdk.Receipts;
import ackbox.sdk.Receiver;
import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.time.Instant;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.logging.Logger;

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
      told(points, connection, headers, args[2]);
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
      raced(connection, args);
      unchanged(connection);
    }
  }

  /** What the work gets; and a message that was sent too long ago. */
  static void told(Receiver points, Connection connection, Map<String, String> headers, String body) throws Exception {
    points.once(connection, headers::get, body.getBytes(StandardCharsets.UTF_8), (own, one) -> {
      System.out.println(String.join(" ", one.messageCode(), one.sceneType(), "" + one.attempt(), "" + one.round(), one.body(), one.headers().get("ackbox-attempt")));
      return null;
    });
    connection.rollback();
    points.maxAge(Duration.ofSeconds(-1));
    take(points, connection, headers, body);
    points.maxAge(Duration.ofMinutes(5));
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

  /** Two that send and prune at the same time, on a database as strict as MariaDB is since 11.6.2: a row that has changed since a transaction began to read is an error. */
  static void raced(Connection connection, String[] args) throws Exception {
    Ackbox ackbox = new Ackbox("http://127.0.0.1:1", null);
    String receipt = "insert into ackbox_receipt_outbox (consumer, callback_url, callback_token, receipt, created_at) values ('raced', '', '', '{}', '2026-01-01')";
    run(connection, receipt);
    run(connection, "insert into ackbox_received (consumer, webhook_id, task_no, forget_after) values ('raced', 'raced', 'raced', '2026-01-01')");
    Connect others = () -> DriverManager.getConnection(args[0]);
    Receiver receiver = new Receiver(others, "raced", List.of(args[1]), ackbox, Duration.ofSeconds(8));
    Receiver strict = new Receiver(() -> strict(args[0], receiver::prune), "raced", List.of(args[1]), ackbox, Duration.ofSeconds(8));
    strict.prune();
    run(connection, receipt);
    // The first read of PostgreSQL locks the row already.
    String claimed = args[0].startsWith("jdbc:mariadb") ? "update ackbox_receipt_outbox set next_try_at = '2099-01-01' where consumer = 'raced'" : "select 1";
    CountDownLatch claims = new CountDownLatch(2);
    StringBuffer told = new StringBuffer();
    Connect counted = () -> {
      claims.countDown();
      return strict(args[0], () -> {
        try (Connection other = others.open()) {
          run(other, claimed);
        }
      });
    };
    Logger log = Logger.getLogger("ackbox.sdk");
    log.setFilter(line -> told.append(line.getMessage()).isEmpty());
    Thread sending = new Thread(new Receipts(counted, "raced", ackbox));
    sending.start();
    claims.await();
    System.out.println("two at the same time" + told);
    sending.interrupt();
    sending.join();
    run(connection, "delete from ackbox_receipt_outbox where consumer = 'raced'");
  }

  interface Meanwhile {
    void run() throws Exception;
  }

  /** After the first read, `meanwhile` runs in another process. */
  static Connection strict(String url, Meanwhile meanwhile) throws SQLException {
    Connection inner = DriverManager.getConnection(url);
    try {
      run(inner, "set session innodb_snapshot_isolation = on");
    } catch (SQLException unknown) {
      // PostgreSQL, or an older server.
    }
    AtomicBoolean isFirst = new AtomicBoolean(true);
    return proxy(Connection.class, inner, (name, made) ->
        !name.equals("prepareStatement") ? made : proxy(PreparedStatement.class, (PreparedStatement) made, (read, rows) -> {
          if (read.equals("executeQuery") && isFirst.getAndSet(false)) meanwhile.run();
          return rows;
        }));
  }

  interface Change {
    Object of(String method, Object result) throws Exception;
  }

  static <T> T proxy(Class<T> type, T inner, Change change) {
    return type.cast(Proxy.newProxyInstance(Once.class.getClassLoader(), new Class<?>[] {type}, (proxy, method, args) -> {
      try {
        return change.of(method.getName(), method.invoke(inner, args));
      } catch (InvocationTargetException failed) {
        throw failed.getCause();
      }
    }));
  }

  static void run(Connection connection, String text) throws SQLException {
    try (Statement statement = connection.createStatement()) {
      statement.execute(text);
    }
    if (!connection.getAutoCommit()) connection.commit();
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
