// Writes and posts a task with every member of the SDK. Usage: java -cp … Members.java JDBC_URL ACKBOX_URL

import ackbox.sdk.Ackbox;
import ackbox.sdk.Outbox;
import ackbox.sdk.Task;
import java.sql.Connection;
import java.sql.DriverManager;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.TimeZone;

public class Members {
  public static void main(String[] args) throws Exception {
    TimeZone.setDefault(TimeZone.getTimeZone("Asia/Tokyo"));
    Task task =
        Task.of("order.paid", "{\"emoji\": \"💸\", \"quote\": \"'\\\"\\\\\", \"total\": 7.00}")
            .taskNo("order:1.full_x-1")
            .sceneType("vip \"quoted\"\n")
            .deliverStartTime(Instant.parse("2026-11-20T10:00:00.123Z"))
            .deliverBefore(Instant.parse("2026-11-20T11:00:00.0000001Z"))
            .delay(Duration.ofMillis(1_500))
            .orderingKey("kunde-ä")
            .needCallback(false)
            .retryTimes(7)
            .biz("order", "1")
            .uniqueBiz(true)
            .after("order-0")
            .extend("{\"by\":\"test\"}")
            .traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    try (Connection connection = DriverManager.getConnection(args[0])) {
      connection.setAutoCommit(false);
      Outbox.put(connection, task);
      connection.commit();
    }
    new Ackbox(args[1], "a-key").post(task);
    for (String body : List.of("", "{", "{\"a\":1,}", "[1 2]", "01", "\"\\x\"", "\"\n\"", "nul", "null", "{}x", "\"half \ud83d\"", "\"half \\ud83d\"", "{\"\\udcb8\":1}", "[\"a\\u0000b\"]", "{\"\\u0000\":1}", "{\"a\":null,\"\\u0061\":2}", "[".repeat(100_000)))
      if (isTaken(body)) System.out.println("taken: " + body);
    for (String body : List.of("1", " [ ] ", "[\"\\ud83d\\udcb8\", \"\\\\u0000\", {\"a\":1}, {\"a\":1}]", "{\"a\":{\"b\":[true,false,null,-1.5e+3,\"\\u00e9\\n\"]}}"))
      if (!isTaken(body)) System.out.println("not taken: " + body);
    if (!isTaken("9".repeat(1_000_000))) System.out.println("not taken: a long number");
    for (Runnable wrong : List.<Runnable>of(() -> task.delay(Duration.ofMillis(-1)), () -> task.extend("null"), () -> task.extend("[]"), () -> task.extend("{\"a\":\"\ud83d\"}"), () -> task.orderingKey("a\0b"), () -> task.sceneType("\ud83d"), () -> task.biz("order", "\0"), () -> task.biz("\udcb8", "1"), () -> task.traceparent("\0")))
      try {
        wrong.run();
        System.out.println("taken: what no database can hold, or a delay that is none");
      } catch (IllegalArgumentException refused) {
        continue;
      }
  }

  static boolean isTaken(String body) {
    try {
      Task.of("order.paid", body);
      return true;
    } catch (IllegalArgumentException refused) {
      return false;
    }
  }
}
