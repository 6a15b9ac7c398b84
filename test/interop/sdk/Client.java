// The client against a server that misbehaves according to the path. Usage: java -cp … Client.java URL

import ackbox.sdk.Ackbox;
import ackbox.sdk.AckboxException;
import ackbox.sdk.Task;
import java.time.Duration;

public class Client {
  static String url;

  public static void main(String[] args) {
    url = args[0];
    // A proxy's HTML page, and JSON that is not a task.
    post("page", null);
    post("other", null);
    // Headers and half a body.
    post("stall", null);
    // A key with the newline of its file, and a key that is invalid in a header.
    post("key", "ak_secret\n");
    try {
      new Ackbox(url, "ak_sec\nret");
      System.out.println("key taken");
    } catch (IllegalArgumentException refused) {
      System.out.println("key refused" + (refused.toString().contains("ak_") ? " and named" : ""));
    }
  }

  static void post(String path, String key) {
    long begun = System.nanoTime();
    try {
      new Ackbox(url + path, key, Duration.ofSeconds(path.equals("stall") ? 2 : 120), Duration.ofMillis(1)).post(Task.of("order.paid", "{}"));
      System.out.println(path + " taken");
    } catch (AckboxException error) {
      boolean isSoon = System.nanoTime() - begun < 15_000_000_000L;
      System.out.println(path + " " + error.status + " " + error.code + (isSoon ? "" : ", late"));
    }
  }
}
