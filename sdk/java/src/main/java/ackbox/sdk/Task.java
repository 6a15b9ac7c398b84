package ackbox.sdk;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.stream.Collectors;

/**
 * A task as producers write it: {@code Task.of("order.paid", body).taskNo("order-1001-paid")}. The body is JSON text, and is delivered as it is.
 * Throws IllegalArgumentException for what could never become a task, while the transaction can still be rolled back.
 */
public final class Task {
  private static final String TASK_NO = "[A-Za-z0-9][A-Za-z0-9._:-]{0,127}";
  private static final String CODE = "[A-Za-z0-9][A-Za-z0-9._-]{0,254}";

  /** The most levels of JSON that Ackbox takes in a body, the outermost value included. */
  private static final int MOST_LEVELS = 64;

  /** JSON text that goes as it is, not as a string. */
  private record Raw(String text) {}

  /** The column of ackbox_outbox, and what PostgreSQL casts its text to. */
  record Column(String name, String type, String value) {}

  private record Kind(String column, String type) {}

  private static final Map<String, Kind> KINDS =
      Map.ofEntries(
          Map.entry("taskNo", new Kind("task_no", "text")),
          Map.entry("messageCode", new Kind("message_code", "text")),
          Map.entry("messageBody", new Kind("message_body", "text")),
          Map.entry("sceneType", new Kind("scene_type", "text")),
          Map.entry("deliverStartTime", new Kind("deliver_start_time", "timestamptz")),
          Map.entry("delay", new Kind("delay_ms", "bigint")),
          Map.entry("deliverBefore", new Kind("deliver_before", "timestamptz")),
          Map.entry("orderingKey", new Kind("ordering_key", "text")),
          Map.entry("needCallback", new Kind("need_callback", "boolean")),
          Map.entry("retryTimes", new Kind("retry_times", "int")),
          Map.entry("bizType", new Kind("biz_type", "text")),
          Map.entry("bizKey", new Kind("biz_key", "text")),
          Map.entry("uniqueBiz", new Kind("unique_biz", "boolean")),
          Map.entry("after", new Kind("after", "jsonb")),
          Map.entry("extend", new Kind("extend", "jsonb")),
          Map.entry("traceparent", new Kind("traceparent", "text")));

  private final Map<String, Object> members = new LinkedHashMap<>();

  private Task(String messageCode, String messageBody) {
    if (messageCode == null || !messageCode.matches(CODE))
      throw new IllegalArgumentException("messageCode must be 1 to 255 of A-Z a-z 0-9 . _ - and start with a letter or digit");
    Object body = messageBody == null ? null : Json.read(messageBody);
    if (body == null) throw new IllegalArgumentException("messageBody must be any JSON value but null");
    checkTexts("messageBody", body);
    checkLevels("messageBody", body, MOST_LEVELS);
    // From here on a second try is the same task.
    members.put("taskNo", UUID.randomUUID().toString());
    members.put("messageCode", messageCode);
    members.put("messageBody", new Raw(messageBody));
  }

  public static Task of(String messageCode, String messageBody) {
    return new Task(messageCode, messageBody);
  }

  /** Your own number of the task: the same one again is the same task. Default: a random one. */
  public Task taskNo(String taskNo) {
    return put("taskNo", checked(taskNo));
  }

  public String taskNo() {
    return (String) members.get("taskNo");
  }

  public Task sceneType(String sceneType) {
    return put("sceneType", sceneType);
  }

  public Task deliverStartTime(Instant time) {
    return put("deliverStartTime", time);
  }

  /** Not before this time after the insertion of the row, or the arrival of the request. */
  public Task delay(Duration delay) {
    if (delay == null || delay.isNegative()) throw new IllegalArgumentException("delay must be a duration of zero or more");
    return put("delay", delay.toMillis());
  }

  public Task deliverBefore(Instant time) {
    return put("deliverBefore", time);
  }

  public Task orderingKey(String key) {
    return put("orderingKey", key);
  }

  public Task needCallback(boolean isNeeded) {
    return put("needCallback", isNeeded);
  }

  public Task retryTimes(int times) {
    return put("retryTimes", times);
  }

  /** The business object that it is about. */
  public Task biz(String type, String key) {
    return put("bizType", type).put("bizKey", key);
  }

  public Task uniqueBiz(boolean isUnique) {
    return put("uniqueBiz", isUnique);
  }

  /** Waits until these tasks are HANDLED. */
  public Task after(String... taskNos) {
    return put("after", new Raw(List.of(taskNos).stream().map(Json::quote).collect(Collectors.joining(",", "[", "]"))));
  }

  /** A JSON object, kept and shown with the task, never delivered. */
  public Task extend(String json) {
    if (json == null || !(Json.read(json) instanceof Map<?, ?> object)) throw new IllegalArgumentException("extend must be a JSON object");
    checkTexts("extend", object);
    // It is a part of the task, which is a level too.
    checkLevels("extend", object, MOST_LEVELS - 1);
    return put("extend", new Raw(json));
  }

  public Task traceparent(String traceparent) {
    return put("traceparent", traceparent);
  }

  boolean has(String member) {
    return members.containsKey(member);
  }

  /** As the API takes it; `more` is further members, or empty. */
  String json(String more) {
    return members.entrySet().stream()
        .map(each -> Json.quote(each.getKey()) + ":" + jsonOf(each.getValue()))
        .collect(Collectors.joining(",", "{", more + "}"));
  }

  List<Column> columns(boolean isPostgres) {
    List<Column> columns = new ArrayList<>();
    members.forEach((name, value) -> {
      Kind kind = KINDS.get(name);
      columns.add(new Column(kind.column, kind.type, textOf(isPostgres, value)));
    });
    return columns;
  }

  /** Whether its body or its extend has more levels. */
  boolean isDeeper(int most) {
    return List.of("messageBody", "extend").stream()
        .map(members::get)
        .anyMatch(json -> json instanceof Raw raw && levels(Json.read(raw.text())) > most);
  }

  private static void checkLevels(String name, Object value, int most) {
    if (levels(value) > most) throw new IllegalArgumentException(name + " must be at most " + most + " levels deep");
  }

  private static int levels(Object value) {
    Iterable<?> members = value instanceof Map<?, ?> map ? map.values() : value instanceof List<?> list ? list : null;
    if (members == null) return 0;
    int most = 0;
    for (Object member : members) most = Math.max(most, levels(member));
    return most + 1;
  }

  /** Ackbox refuses a request with NUL or half a surrogate pair, also as escapes. Unescaped, a half would be a question mark in UTF-8, without an error. */
  private static void checkTexts(String member, Object value) {
    if (value instanceof List<?> items) items.forEach(each -> checkTexts(member, each));
    if (value instanceof Map<?, ?> object)
      object.forEach((name, each) -> {
        checkTexts(member, name);
        checkTexts(member, each);
      });
    if (!(value instanceof String text)) return;
    if (text.indexOf('\0') >= 0) throw new IllegalArgumentException(member + " has NUL, which no database text can hold");
    if (!StandardCharsets.UTF_8.newEncoder().canEncode(text)) throw new IllegalArgumentException(member + " has half a surrogate pair");
  }

  static String checked(String taskNo) {
    if (taskNo != null && taskNo.matches(TASK_NO)) return taskNo;
    throw new IllegalArgumentException("taskNo must be 1 to 128 of A-Z a-z 0-9 . _ : - and start with a letter or digit");
  }

  private Task put(String member, Object value) {
    if (value == null) throw new IllegalArgumentException(member + " is null: leave it out");
    checkTexts(member, value);
    members.put(member, value);
    return this;
  }

  private static String jsonOf(Object value) {
    if (value instanceof Raw raw) return raw.text;
    return value instanceof Boolean || value instanceof Number ? value.toString() : Json.quote(value.toString());
  }

  private static String textOf(boolean isPostgres, Object value) {
    if (value instanceof Raw raw) return raw.text;
    if (value instanceof Instant time) return Sql.time(isPostgres, time);
    if (value instanceof Boolean is && !isPostgres) return is ? "1" : "0";
    return value.toString();
  }
}
