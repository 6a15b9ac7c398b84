package ackbox.example;

import ackbox.sdk.Ackbox;
import ackbox.sdk.Receiver;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.Statement;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A receiver that grants points once: JDBC_URL SIGNING_SECRET ACKBOX_URL PORT java ackbox.example.Points. In production: a pool for
 * JDBC_URL, and {@code POINTS.prune()} once a day.
 */
public class Points {
  static final int MAX_BYTES = 1_048_576;
  static final Map<String, String> ENV = System.getenv();
  static final Receiver POINTS =
      new Receiver(
          () -> DriverManager.getConnection(ENV.get("JDBC_URL")),
          "points",
          List.of(ENV.get("SIGNING_SECRET")),
          new Ackbox(ENV.get("ACKBOX_URL"), null),
          Duration.ofMillis(Math.round(Double.parseDouble(ENV.getOrDefault("DEADLINE_SECONDS", "8")) * 1_000)));

  public static void main(String[] args) throws IOException {
    int port = Integer.parseInt(ENV.getOrDefault("PORT", "8080"));
    HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 0);
    server.setExecutor(Executors.newCachedThreadPool());
    server.createContext("/", Points::receive);
    server.start();
    Thread receipts = new Thread(POINTS.receipts());
    receipts.setDaemon(true);
    receipts.start();
    System.out.println("listening " + server.getAddress().getPort());
  }

  static String grant(Connection connection, Receiver.Delivery delivery) throws Exception {
    String body = delivery.body();
    if (body.contains("\"closed\"")) throw new Receiver.Refuse("the account is closed");
    if (body.contains("\"later\"")) throw new Receiver.Retry(Duration.ofSeconds(7));
    int points = number(body, "points", 0);
    try (PreparedStatement statement = connection.prepareStatement("update points set granted = granted + ? where id = 1")) {
      statement.setInt(1, points);
      statement.executeUpdate();
    }
    Thread.sleep(number(body, "seconds", 0) * 1_000L);
    return "{\"granted\":" + points + "}";
  }

  /** In production: a JSON library. */
  static int number(String body, String name, int otherwise) {
    Matcher found = Pattern.compile("\"" + name + "\":\\s*(\\d+)").matcher(body);
    return found.find() ? Integer.parseInt(found.group(1)) : otherwise;
  }

  static void receive(HttpExchange exchange) throws IOException {
    byte[] body = exchange.getRequestBody().readNBytes(MAX_BYTES + 1);
    Receiver.Answer answer =
        body.length > MAX_BYTES
            ? new Receiver.Answer(413, Map.of(), "")
            : POINTS.answer(exchange.getRequestHeaders()::getFirst, body, Points::grant);
    answer.headers().forEach(exchange.getResponseHeaders()::set);
    byte[] text = answer.text().getBytes(StandardCharsets.UTF_8);
    exchange.sendResponseHeaders(answer.status(), text.length == 0 ? -1 : text.length);
    if (text.length > 0) exchange.getResponseBody().write(text);
    exchange.close();
  }
}
