package ackbox.example.rocketmq;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.message.MessageView;

/**
 * A downstream of Ackbox behind RocketMQ 5: handles a delivery once, by its webhook-id, then sends its receipt. It accepts any record of
 * the topic: {@code ackbox.sdk.Receiver.once} also checks signatures, and stores the ids in the transaction of the work.
 *   ENDPOINTS=127.0.0.1:8081 TOPIC=order-paid GROUP=points ACKBOX_URL=http://127.0.0.1:3000 [ACCESS_KEY= SECRET_KEY=]
 */
public final class Receiver {
  private static final HttpClient http = HttpClient.newBuilder().connectTimeout(Duration.ofSeconds(5)).build();
  private static final URI callback = URI.create(env("ACKBOX_URL", "http://127.0.0.1:3000") + "/callback");
  /** With these codes Ackbox refuses a receipt for good: a wrong or old token, a removed or deleted task, an invalid receipt. */
  private static final Pattern REFUSED =
      Pattern.compile(
          "\"code\":\"(BAD_TOKEN|TASK_NOT_FOUND|TASK_DELETED|INVALID|WRONG_CODE|WRONG_DOWNSTREAM|TOO_LARGE|DATA_TOO_LARGE|"
              + "NOT_JSON|NOT_UTF8|NOT_I_JSON|TOO_DEEP|TOO_MANY_MEMBERS)\"");
  // In memory for the example. In production: a table with webhook-id as its key, written in the transaction of the work.
  private static final Set<String> handled = new HashSet<>();

  public static void main(String[] args) throws Exception {
    // The default of 3 s is too short for a start on a busy machine.
    var client = ClientConfiguration.newBuilder().setEndpoints(env("ENDPOINTS", "127.0.0.1:8081"))
      .setRequestTimeout(Duration.ofSeconds(30));
    // The Java client uses TLS by default.
    client.enableSsl(Boolean.parseBoolean(env("TLS", "false")));
    if (System.getenv("ACCESS_KEY") != null)
      client.setCredentialProvider(new StaticSessionCredentialsProvider(env("ACCESS_KEY", ""), env("SECRET_KEY", "")));
    var consumer = ClientServiceProvider.loadService().newPushConsumerBuilder()
      .setClientConfiguration(client.build())
      .setConsumerGroup(env("GROUP", "points"))
      .setSubscriptionExpressions(Map.of(env("TOPIC", "order-paid"), FilterExpression.SUB_ALL))
      .setMessageListener(Receiver::consume)
      .build();
    Runtime.getRuntime().addShutdownHook(new Thread(() -> {
      try { consumer.close(); } catch (IOException gone) { /* it ends anyway */ }
    }));
    System.out.println("listening");
    Thread.currentThread().join();
  }

  /** After FAILURE or an exception RocketMQ delivers the message again. */
  private static ConsumeResult consume(MessageView message) {
    var properties = message.getProperties();
    handleOnce(properties.get("webhook-id"), StandardCharsets.UTF_8.decode(message.getBody()).toString());
    return receipt(properties) ? ConsumeResult.SUCCESS : ConsumeResult.FAILURE;
  }

  /**
   * A repeated id was handled before, but our receipt may be lost: send it again, without handling the task twice. One at a time: a
   * duplicate that arrives during the work must not confirm it.
   */
  private static synchronized void handleOnce(String id, String body) {
    if (handled.contains(id)) {
      System.out.println("again " + id);
      return;
    }
    handle(id, body);
    handled.add(id);
  }

  private static void handle(String id, String body) {
    System.out.println("handled " + id + " " + body);
  }

  /** It uses the configured address: headers are not signed, so a URL in them cannot be trusted. */
  private static boolean receipt(Map<String, String> properties) {
    var token = properties.get("ackbox-callback-token");
    if (token == null) return true; // no receipt is expected
    var body = "{\"taskNo\":\"%s\",\"messageCode\":\"%s\",\"result\":\"HANDLED\"}"
      .formatted(properties.get("ackbox-task-no"), properties.get("ackbox-message-code"));
    var request = HttpRequest.newBuilder(callback)
      .timeout(Duration.ofSeconds(5))
      .header("content-type", "application/json")
      .header("ackbox-callback-token", token)
      .POST(HttpRequest.BodyPublishers.ofString(body))
      .build();
    try {
      var answer = http.send(request, HttpResponse.BodyHandlers.ofString());
      var status = answer.statusCode();
      // Only an answer of Ackbox ends it. A gateway answers with another body, also in JSON.
      if (status / 100 == 2) return answer.body().contains("\"taskNo\"");
      var isRefused = status / 100 == 4 && REFUSED.matcher(answer.body()).find();
      if (isRefused) System.err.println("the receipt of " + properties.get("ackbox-task-no") + " was answered " + status);
      return isRefused;
    } catch (IOException away) {
      return false;
    } catch (InterruptedException stop) {
      Thread.currentThread().interrupt();
      return false;
    }
  }

  private static String env(String name, String otherwise) {
    return System.getenv().getOrDefault(name, otherwise);
  }
}
