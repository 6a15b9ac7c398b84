// The client against a server that misbehaves as its path says. Usage: java -cp … Client.java URL

import ackbox.sdk.Ackbox;
import ackbox.sdk.AckboxException;
import ackbox.sdk.Task;
import java.time.Duration;

public class Client {
  static String url;

  public static void main(String[] args) {
    url = args[0];
    // A proxy's page, and JSON that is no task.
    post("page", null);
    post("other", null);
    // Headers, and half a body.
    post("stall", null);
    // As it is in a file, and one that no header takes.
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
      new Ackbox(url + path, key, Duration.ofSeconds(2), Duration.ofMillis(1)).post(Task.of("order.paid", "{}"));
      System.out.println(path + " taken");
    } catch (AckboxException error) {
      boolean isSoon = System.nanoTime() - begun < 15_000_000_000L;
      System.out.println(path + " " + error.status + " " + error.code + (isSoon ? "" : ", late"));
    }
  }
}
