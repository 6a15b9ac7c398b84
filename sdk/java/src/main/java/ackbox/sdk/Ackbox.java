package ackbox.sdk;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.net.http.HttpTimeoutException;
import java.time.Duration;
import java.time.Instant;
import java.time.OffsetDateTime;
import java.time.format.DateTimeParseException;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * The HTTP API of Ackbox, as producers and receivers use it. Each call may be said again, so it is tried again where that may help; else it throws an {@link
 * AckboxException}.
 */
public final class Ackbox {
  /** A task as Ackbox tells of it. {@code json} is the whole answer. */
  public record TaskAnswer(String taskNo, String status, Instant createdAt, String json) {}

  private static final System.Logger LOG = System.getLogger("ackbox.sdk");
  /** With these codes Ackbox refuses a receipt for good: a wrong or old token, a task that is missing or deleted, an invalid receipt. */
  private static final Set<String> REFUSED =
      Set.of(
          "BAD_TOKEN", "TASK_NOT_FOUND", "TASK_DELETED", "INVALID", "WRONG_CODE", "WRONG_DOWNSTREAM", "TOO_LARGE", "DATA_TOO_LARGE", "NOT_JSON", "NOT_UTF8",
          "NOT_I_JSON", "TOO_DEEP", "TOO_MANY_MEMBERS");
  private final URI base;
  private final String key;
  private final Duration timeout;
  private final Duration retryFor;
  private final HttpClient client =
      HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(Duration.ofSeconds(5)).build();

  /** {@code key} may be null, where AUTH is off; spaces and newlines around it are cut. One try takes up to 10 s, all of them up to 30 s. */
  public Ackbox(String url, String key) {
    this(url, key, Duration.ofSeconds(10), Duration.ofSeconds(30));
  }

  /** {@code retryFor}: no further try begins after it. */
  public Ackbox(String url, String key, Duration timeout, Duration retryFor) {
    URI given = URI.create(url.endsWith("/") ? url : url + "/");
    if (given.getScheme() == null || !given.getScheme().matches("https?") || given.getHost() == null || given.getUserInfo() != null)
      throw new IllegalArgumentException("url must be where Ackbox is, like https://ackbox.example.com");
    this.base = given;
    this.key = key == null ? null : key.strip(); // a file ends with a newline
    if (key != null && !this.key.matches("[!-~]+"))
      throw new IllegalArgumentException("key must be one of `npx ackbox key`: printable ASCII without spaces"); // the key itself is never named
    this.timeout = timeout;
    this.retryFor = retryFor;
  }

  /** Returns once Ackbox has committed the task. */
  public TaskAnswer post(Task task) {
    return call("POST", "tasks", task.json(""));
  }

  /** Posts a half message: nothing is delivered before its commit. {@code checkAfter} may be null: 35 s. */
  public TaskAnswer prepare(Task task, Duration checkAfter) {
    String check = checkAfter == null ? "" : ",\"checkBack\":{\"after\":\"" + Math.max(1, checkAfter.toSeconds()) + "s\"}";
    return call("POST", "tasks", task.json(",\"prepared\":true" + check));
  }

  public TaskAnswer commit(String taskNo) {
    return call("POST", path(taskNo) + "/commit", "");
  }

  public TaskAnswer rollback(String taskNo) {
    return call("POST", path(taskNo) + "/rollback", "");
  }

  /** Lets Ackbox ask the producer's check now; gives the task as it is after the answer. */
  public TaskAnswer check(String taskNo) {
    return call("POST", path(taskNo) + "/check", "");
  }

  public TaskAnswer read(String taskNo) {
    return call("GET", path(taskNo), "");
  }

  /**
   * Tells Ackbox that rows were committed with {@link Outbox#enqueue}. It returns at once and never fails: a hint that gets lost costs a second. The future
   * ends when it was answered, or after 2 s.
   */
  public CompletableFuture<Void> nudge() {
    try {
      HttpRequest request = request("POST", "outbox/nudge", "").timeout(Duration.ofSeconds(2)).build();
      return client.sendAsync(request, BodyHandlers.discarding()).orTimeout(2, TimeUnit.SECONDS).handle((answer, error) -> null);
    } catch (RuntimeException error) {
      LOG.log(System.Logger.Level.WARNING, "Ackbox could not be told of a commit", error);
      return CompletableFuture.completedFuture(null);
    }
  }

  /** Sends a receipt once. Null: it was sent, or Ackbox will never accept it. Otherwise it must be sent again, and this is why. */
  String receiptProblem(String token, String receipt) {
    String about = "the receipt of task " + Json.object(receipt).get("taskNo");
    try {
      HttpResponse<String> answer = send(request("POST", "callback", receipt).header("ackbox-callback-token", token));
      String text = about + " was answered " + answer.statusCode() + ": " + answer.body().substring(0, Math.min(200, answer.body().length()));
      // A gateway, or another path, answers with another body, also in JSON. The receipt must not be lost because of it.
      if (answer.statusCode() / 100 == 2) return Json.object(answer.body()).get("taskNo") instanceof String ? null : text;
      if (!(Json.object(answer.body()).get("code") instanceof String code && REFUSED.contains(code))) return text;
      LOG.log(System.Logger.Level.WARNING, text);
      return null;
    } catch (IOException away) {
      return about + " was not answered: " + away;
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
      return about + " was not sent: " + stopped;
    }
  }

  String callback() {
    return base.resolve("callback").toString();
  }

  private TaskAnswer call(String method, String path, String body) {
    long end = System.nanoTime() + retryFor.toNanos();
    for (int tries = 0; ; tries++) {
      try {
        return attempt(method, path, body);
      } catch (AckboxException error) {
        // 100 ms, doubling to 5 s, less up to a half, so that many do not come back in step.
        long pauseMs = (long) (Math.min(5_000, 100L << Math.min(tries, 6)) * ThreadLocalRandom.current().nextDouble(0.5, 1));
        pauseMs = Math.max(pauseMs, error.retryAfter.toMillis());
        if (!error.isTransient() || System.nanoTime() + pauseMs * 1_000_000 > end || !slept(pauseMs)) throw error;
      }
    }
  }

  private TaskAnswer attempt(String method, String path, String body) {
    String what = method + " /" + path;
    try {
      HttpResponse<String> answer = send(request(method, path, body));
      TaskAnswer task = answer.statusCode() / 100 == 2 ? taskOf(answer.body()) : null;
      if (task != null) return task;
      throw refused(what, answer);
    } catch (IOException away) {
      throw unreachable(what, away);
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
      throw unreachable(what, stopped);
    }
  }

  /** Up to the last byte of the answer: the timeout of a request ends with the headers, and a server that stalls in the body would hold the caller for ever. */
  private HttpResponse<String> send(HttpRequest.Builder request) throws IOException, InterruptedException {
    CompletableFuture<HttpResponse<String>> answer = client.sendAsync(request.build(), BodyHandlers.ofString());
    try {
      return answer.get(timeout.toMillis(), TimeUnit.MILLISECONDS);
    } catch (TimeoutException late) {
      throw new HttpTimeoutException("no answer within " + timeout.toMillis() + " ms");
    } catch (ExecutionException error) {
      throw error.getCause() instanceof IOException away ? away : new IOException(error.getCause());
    } finally {
      answer.cancel(true);
    }
  }

  private HttpRequest.Builder request(String method, String path, String body) {
    HttpRequest.Builder request =
        HttpRequest.newBuilder(base.resolve(path)).timeout(timeout).header("accept", "application/json");
    // A receipt is proved by its token.
    if (key != null && !path.equals("callback")) request.header("authorization", "Bearer " + key);
    if (!body.isEmpty()) request.header("content-type", "application/json");
    return request.method(method, body.isEmpty() ? BodyPublishers.noBody() : BodyPublishers.ofString(body));
  }

  private AckboxException unreachable(String what, Exception why) {
    String text = what + ": Ackbox at " + base.getAuthority() + " cannot be reached: " + why;
    return new AckboxException(text, 0, "UNREACHABLE", null, Duration.ZERO, why);
  }

  private static AckboxException refused(String what, HttpResponse<String> answer) {
    Map<String, Object> problem = Json.object(answer.body());
    String code = problem.get("code") instanceof String text ? text : null;
    String detail = problem.get("detail") instanceof String text ? text : null;
    String text =
        code == null
            ? what + " was answered " + answer.statusCode() + ", and not by Ackbox"
            : what + " was refused: " + answer.statusCode() + " " + code + (detail == null ? "" : " (" + detail + ")");
    String after = answer.headers().firstValue("retry-after").filter(one -> one.matches("[0-9]{1,4}")).orElse("0");
    return new AckboxException(text, answer.statusCode(), code, detail, Duration.ofSeconds(Long.parseLong(after)), null);
  }

  private static String path(String taskNo) {
    return "tasks/" + Task.checked(taskNo).replace(":", "%3A");
  }

  /** Null: it is not Ackbox's. A proxy answers 200 with a page of its own. */
  private static TaskAnswer taskOf(String json) {
    Map<String, Object> task = Json.object(json);
    if (!(task.get("taskNo") instanceof String taskNo) || !(task.get("status") instanceof String status)) return null;
    return new TaskAnswer(taskNo, status, timeOf(task.get("createdAt")), json);
  }

  static Instant timeOf(Object text) {
    try {
      return text instanceof String time ? OffsetDateTime.parse(time).toInstant() : null;
    } catch (DateTimeParseException none) {
      return null;
    }
  }

  private static boolean slept(long ms) {
    try {
      Thread.sleep(ms);
      return true;
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
      return false;
    }
  }
}
