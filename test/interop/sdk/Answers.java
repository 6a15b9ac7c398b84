// Answers of a receiver whose work fails, or exceeds the deadline; and receipts whose sending thread is interrupted. Usage: java -cp … Answers.java JDBC_URL SECRET BODY HEADER=VALUE…

import ackbox.sdk.Ackbox;
import ackbox.sdk.Connect;
import ackbox.sdk.Receipts;
import ackbox.sdk.Receiver;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import java.util.stream.Collectors;

public class Answers {
  static String[] given;
  /** Its deadline is longer than any work here. */
  static Receiver points;
  /** Its deadline passes while the work waits for `answered`. */
  static Receiver late;
  /** Released when the current request is answered: its work continues only then. */
  static volatile CountDownLatch answered;

  public static void main(String[] args) throws Exception {
    given = args;
    points = receiver(Duration.ofMinutes(10));
    late = receiver(Duration.ofSeconds(1));
    for (Duration after : List.of(Duration.ofMillis(500), Duration.ofHours(5), Duration.ofSeconds(-1)))
      System.out.println(points.answer(headers()::get, args[2].getBytes(StandardCharsets.UTF_8), (own, delivery) -> {
        throw new Receiver.Retry(after);
      }).headers());
    // A rollback, as the server does at a deadlock, whose error this work ignores; then a deadlock error that a library has wrapped.
    answer((own, delivery) -> {
      try (Statement statement = own.createStatement()) {
        statement.execute("rollback");
      }
      return null;
    });
    answer((own, delivery) -> {
      throw new IllegalStateException(new SQLException("deadlock", "40P01"));
    });
    answer((own, delivery) -> {
      throw new SQLException("Record has changed since last read in table 'points'", "HY000", 1020);
    });
    away();
    interrupted();
    recycled((own, delivery) -> {
      answered.await();
      throw new Receiver.Refuse("x".repeat(999) + "💸");
    });
    recycled((own, delivery) -> {
      answered.await();
      return "{\"for\":\"" + delivery.taskNo() + "\"}";
    });
  }

  static Receiver receiver(Duration deadline) {
    return new Receiver(() -> DriverManager.getConnection(given[0]), "points", List.of(given[1]), new Ackbox("http://127.0.0.1:1", null), deadline);
  }

  static Map<String, String> headers() {
    return Arrays.stream(given).skip(3).map(each -> each.split("=", 2)).collect(Collectors.toMap(each -> each[0], each -> each[1]));
  }

  static void answer(Receiver.Work work) {
    System.out.println(points.answer(headers()::get, given[2].getBytes(StandardCharsets.UTF_8), work).status());
  }

  /** Receipts while the database is away: the log after the third failure in a row. */
  static void away() throws Exception {
    AtomicInteger told = new AtomicInteger();
    Handler counting = new Handler() {
      @Override
      public void publish(LogRecord line) {
        if (line.getMessage().contains("the database is away")) told.incrementAndGet();
      }

      @Override
      public void flush() {}

      @Override
      public void close() {}
    };
    Logger log = Logger.getLogger("ackbox.sdk");
    log.addHandler(counting);
    CountDownLatch failures = new CountDownLatch(3);
    Connect connect = () -> {
      failures.countDown();
      throw new SQLException("the database is away");
    };
    Thread sending = new Thread(new Receipts(connect, "points", new Ackbox("http://127.0.0.1:1", null)));
    sending.start();
    failures.await();
    sending.interrupt();
    sending.join();
    log.removeHandler(counting);
    System.out.println("told " + told.get());
  }

  /** The thread is interrupted while it sends the first of three receipts: the other two stay unchanged. */
  static void interrupted() throws Exception {
    Connect connect = () -> DriverManager.getConnection(given[0]);
    try (ServerSocket ackbox = new ServerSocket(0); Connection connection = connect.open(); Statement statement = connection.createStatement()) {
      Receipts receipts = new Receipts(connect, "points", new Ackbox("http://127.0.0.1:" + ackbox.getLocalPort(), null));
      connection.setAutoCommit(false);
      for (int nth = 0; nth < 3; nth++) receipts.write(connection, headers()::get, "HANDLED", null);
      connection.commit();
      Thread sending = new Thread(receipts);
      sending.start();
      ackbox.accept();
      sending.interrupt();
      sending.join();
      var found = statement.executeQuery("select sum(tries) from ackbox_receipt_outbox");
      found.next();
      System.out.println("tries " + found.getInt(1));
      statement.executeUpdate("delete from ackbox_receipt_outbox");
      connection.commit();
    }
  }

  /** As in a servlet container, which reuses the request object for the next request. */
  static void recycled(Receiver.Work work) throws Exception {
    Map<String, String> headers = headers();
    CountDownLatch isAnswered = answered = new CountDownLatch(1);
    Function<String, String> header = name -> {
      if (isAnswered.getCount() == 0) throw new IllegalStateException("the request was recycled");
      return headers.get(name);
    };
    System.out.println(late.answer(header, given[2].getBytes(StandardCharsets.UTF_8), work).status());
    isAnswered.countDown();
    try (Connection connection = DriverManager.getConnection(given[0]); Statement look = connection.createStatement()) {
      for (; ; Thread.sleep(50)) {
        var found = look.executeQuery("select receipt from ackbox_receipt_outbox");
        if (!found.next()) continue;
        System.out.println(found.getString(1));
        look.executeUpdate("delete from ackbox_receipt_outbox");
        return;
      }
    }
  }
}
