package ackbox.sdk;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** JSON as far as the SDK meets it: answers of Ackbox, its checks, and whether a body is JSON. A body itself is text, and stays as it is. */
final class Json {
  private static final int DEEPEST = 500;
  private final String text;
  private int at;

  private Json(String text) {
    this.text = text;
  }

  /** No value is made of it: nobody here asks for one, and one of a million digits takes a minute. */
  record Numeral(String text) {}

  /** Map, List, String, Numeral, Boolean or null. Throws IllegalArgumentException for what is no JSON, and for a name that an object has twice. */
  static Object read(String text) {
    Json json = new Json(text);
    Object value = json.value(0);
    json.space();
    if (json.at < text.length()) throw json.wrong();
    return value;
  }

  /** An object's members; none for anything else. */
  @SuppressWarnings("unchecked")
  static Map<String, Object> object(String text) {
    try {
      return read(text) instanceof Map<?, ?> map ? (Map<String, Object>) map : Map.of();
    } catch (IllegalArgumentException none) {
      return Map.of();
    }
  }

  static String quote(String text) {
    StringBuilder quoted = new StringBuilder("\"");
    for (char each : text.toCharArray()) {
      if (each == '"' || each == '\\') quoted.append('\\').append(each);
      else if (each < ' ') quoted.append(String.format("\\u%04x", (int) each));
      else quoted.append(each);
    }
    return quoted.append('"').toString();
  }

  private Object value(int depth) {
    if (depth > DEEPEST) throw new IllegalArgumentException("JSON that is too deep");
    space();
    char first = at < text.length() ? text.charAt(at) : 0;
    return switch (first) {
      case '{' -> object(depth);
      case '[' -> array(depth);
      case '"' -> string();
      case 't' -> word("true", true);
      case 'f' -> word("false", false);
      case 'n' -> word("null", null);
      default -> number();
    };
  }

  private Map<String, Object> object(int depth) {
    Map<String, Object> members = new LinkedHashMap<>();
    at++;
    if (isNext('}')) return members;
    do {
      space();
      String name = string();
      if (!isNext(':')) throw wrong();
      if (members.containsKey(name)) throw new IllegalArgumentException("the same member name twice in one object");
      members.put(name, value(depth + 1));
    } while (isNext(','));
    if (!isNext('}')) throw wrong();
    return members;
  }

  private List<Object> array(int depth) {
    List<Object> items = new ArrayList<>();
    at++;
    if (isNext(']')) return items;
    do items.add(value(depth + 1));
    while (isNext(','));
    if (!isNext(']')) throw wrong();
    return items;
  }

  private String string() {
    if (at >= text.length() || text.charAt(at++) != '"') throw wrong();
    StringBuilder read = new StringBuilder();
    while (at < text.length()) {
      char each = text.charAt(at++);
      if (each == '"') return read.toString();
      if (each < ' ') throw wrong();
      read.append(each == '\\' ? escaped() : each);
    }
    throw wrong();
  }

  private char escaped() {
    char each = at < text.length() ? text.charAt(at++) : 0;
    if (each == 'u') {
      if (at + 4 > text.length() || !text.substring(at, at + 4).matches("[0-9a-fA-F]{4}")) throw wrong();
      at += 4;
      return (char) Integer.parseInt(text.substring(at - 4, at), 16);
    }
    int known = "\"\\/bfnrt".indexOf(each);
    if (known < 0) throw wrong();
    return "\"\\/\b\f\n\r\t".charAt(known);
  }

  private Numeral number() {
    int from = at;
    while (at < text.length() && "+-.eE0123456789".indexOf(text.charAt(at)) >= 0) at++;
    String number = text.substring(from, at);
    if (!number.matches("-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?")) throw wrong();
    return new Numeral(number);
  }

  private Object word(String word, Object value) {
    if (!text.startsWith(word, at)) throw wrong();
    at += word.length();
    return value;
  }

  private boolean isNext(char wanted) {
    space();
    boolean is = at < text.length() && text.charAt(at) == wanted;
    if (is) at++;
    return is;
  }

  private void space() {
    while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) at++;
  }

  private IllegalArgumentException wrong() {
    return new IllegalArgumentException("no JSON, at character " + at);
  }
}
