// A downstream of Ackbox in Java 17 or newer (the JDK alone): verifies, handles once, sends its receipt.
//   SIGNING_SECRET=whsec_... ACKBOX_URL=http://127.0.0.1:3000 PORT=8080 java Receiver.java

import com.sun.net.httpserver.Headers;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.time.Duration;
import java.time.Instant;
import java.util.Base64;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Executors;
import java.util.regex.Pattern;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

public class Receiver {
  static final Map<String, String> ENV = System.getenv();
  static final String ACKBOX_URL = ENV.getOrDefault("ACKBOX_URL", "http://127.0.0.1:3000");
  static final byte[] KEY =
      Base64.getDecoder().decode(ENV.getOrDefault("SIGNING_SECRET", "").replaceFirst("^whsec_", ""));
  static final long TOLERANCE_S = 300;
  static final int MAX_BYTES = 1_048_576;
  /** With these codes Ackbox refuses a receipt for good: a wrong or old token, a removed or deleted task, an invalid receipt. */
  static final Pattern REFUSED =
      Pattern.compile(
          "\"code\":\"(BAD_TOKEN|TASK_NOT_FOUND|TASK_DELETED|INVALID|WRONG_CODE|WRONG_DOWNSTREAM|TOO_LARGE|DATA_TOO_LARGE|"
              + "NOT_JSON|NOT_UTF8|NOT_I_JSON|TOO_DEEP|TOO_MANY_MEMBERS)\"");
  static final HttpClient CLIENT =
      HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(Duration.ofSeconds(5)).build();

  // System.out uses the encoding of the terminal, but bodies are UTF-8.
  static final PrintStream OUT =
      new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);

  // In memory for the example. In production: a table with webhook-id as its key, written in the transaction of the work.
  static final Set<String> HANDLED = new HashSet<>();

  public static void main(String[] args) throws IOException {
    if (KEY.length < 24) {
      System.err.println("set SIGNING_SECRET: npm run key -- secret DOWNSTREAM prints it");
      System.exit(1);
    }
    int port = Integer.parseInt(ENV.getOrDefault("PORT", "8080"));
    HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 0);
    server.setExecutor(Executors.newCachedThreadPool());
    server.createContext("/", Receiver::receive);
    server.start();
    OUT.println("listening " + server.getAddress().getPort());
  }

  static void handle(Headers headers, byte[] body) {
    String text = new String(body, StandardCharsets.UTF_8);
    OUT.println(
        "handled " + headers.getFirst("webhook-id") + " " + headers.getFirst("ackbox-task-no") + " " + text);
  }

  static void receive(HttpExchange exchange) throws IOException {
    Headers headers = exchange.getRequestHeaders();
    byte[] body = exchange.getRequestBody().readNBytes(MAX_BYTES + 1);
    if (body.length > MAX_BYTES) {
      answer(exchange, 413, "");
    } else if (!verify(headers, body)) {
      answer(exchange, 401, "");
    } else if (headers.getFirst("webhook-id").startsWith("probe_")) {
      boolean isHandled = isHandled(headers.getFirst("webhook-id").replaceAll("^probe_|_[0-9]+$", ""));
      answer(exchange, isHandled ? 200 : 404, "{\"handled\":" + isHandled + "}");
    } else if (!handleOnce(headers, body)) {
      answer(exchange, 500, ""); // any 5xx: Ackbox sends it again
    } else {
      answer(exchange, 200, "{\"code\":0}");
      if (headers.getFirst("ackbox-callback-token") != null) sendReceipt(headers);
    }
  }

  /** A probe asks whether a delivery is handled. Its work must not run. */
  static boolean isHandled(String id) {
    synchronized (HANDLED) {
      return HANDLED.contains(id);
    }
  }

  /** A repeated id was handled before, but our answer or receipt may be lost: answer again, without handling it twice. */
  static boolean handleOnce(Headers headers, byte[] body) {
    synchronized (HANDLED) {
      String id = headers.getFirst("webhook-id");
      if (HANDLED.contains(id)) return true;
      try {
        handle(headers, body);
        return HANDLED.add(id);
      } catch (RuntimeException error) {
        error.printStackTrace();
        return false;
      }
    }
  }

  /** Standard Webhooks: HMAC-SHA256 over id.timestamp.body, byte for byte. One matching signature is enough. */
  static boolean verify(Headers headers, byte[] body) {
    String id = headers.getFirst("webhook-id");
    String timestamp = headers.getFirst("webhook-timestamp");
    String signatures = headers.getFirst("webhook-signature");
    if (id == null || timestamp == null || signatures == null) return false;
    // With a dot in the id, the id could hold the time, and the time a part of the body.
    if (!id.matches("[A-Za-z0-9_-]+") || !timestamp.matches("[0-9]{1,12}")) return false;
    if (Math.abs(Instant.now().getEpochSecond() - Long.parseLong(timestamp)) > TOLERANCE_S) return false;
    byte[] expected;
    try {
      Mac mac = Mac.getInstance("HmacSHA256");
      mac.init(new SecretKeySpec(KEY, "HmacSHA256"));
      mac.update((id + "." + timestamp + ".").getBytes(StandardCharsets.UTF_8));
      expected = ("v1," + Base64.getEncoder().encodeToString(mac.doFinal(body))).getBytes(StandardCharsets.UTF_8);
    } catch (GeneralSecurityException error) {
      throw new IllegalStateException(error);
    }
    for (String given : signatures.split(" ")) {
      if (MessageDigest.isEqual(given.getBytes(StandardCharsets.UTF_8), expected)) return true;
    }
    return false;
  }

  /** Repeated until Ackbox accepts it. It uses the configured address: headers are not signed, so a URL in them cannot be trusted. */
  static void sendReceipt(Headers headers) {
    // Both contain only letters, digits and . _ : - so they need no escaping.
    String receipt =
        String.format(
            "{\"taskNo\":\"%s\",\"messageCode\":\"%s\",\"result\":\"HANDLED\"}",
            headers.getFirst("ackbox-task-no"), headers.getFirst("ackbox-message-code"));
    HttpRequest request =
        HttpRequest.newBuilder(URI.create(ACKBOX_URL + "/callback"))
            .timeout(Duration.ofSeconds(5))
            .header("content-type", "application/json")
            .header("ackbox-callback-token", headers.getFirst("ackbox-callback-token"))
            .POST(HttpRequest.BodyPublishers.ofString(receipt))
            .build();
    for (int tries = 1; tries <= 10; tries++) {
      try {
        HttpResponse<String> answer = CLIENT.send(request, HttpResponse.BodyHandlers.ofString());
        int status = answer.statusCode();
        // Only an answer of Ackbox ends it. A gateway answers with another body, also in JSON.
        if (status / 100 == 2 && answer.body().contains("\"taskNo\"")) return;
        if (status / 100 == 4 && REFUSED.matcher(answer.body()).find()) {
          System.err.println("the receipt of " + headers.getFirst("ackbox-task-no") + " was answered " + status);
          return;
        }
      } catch (IOException away) {
        // Ackbox is not reachable: try again after the wait
      } catch (InterruptedException stopped) {
        return;
      }
      try {
        Thread.sleep(Math.min(30_000, 250L << tries));
      } catch (InterruptedException stopped) {
        return;
      }
    }
    // After the last try: without a receipt in time Ackbox sends the task again, and a new receipt follows.
  }

  static void answer(HttpExchange exchange, int status, String body) throws IOException {
    byte[] text = body.getBytes(StandardCharsets.UTF_8);
    exchange.getResponseHeaders().set("content-type", "application/json");
    exchange.sendResponseHeaders(status, text.length == 0 ? -1 : text.length);
    if (text.length > 0) exchange.getResponseBody().write(text);
    exchange.close();
  }
}
