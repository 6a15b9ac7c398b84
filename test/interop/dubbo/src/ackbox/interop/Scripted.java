package ackbox.interop;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.Map;
import java.util.TreeMap;
import org.apache.dubbo.common.utils.JsonUtils;
import org.apache.dubbo.rpc.RpcContext;

/** Posts each call, with its body and attachments, to a URL, and does what the answer requests. */
class Scripted implements ScriptedService {
  private static final HttpClient http = HttpClient.newHttpClient();
  private final URI script;

  Scripted(URI script) { this.script = script; }

  public Object call(String body) throws Exception {
    Map<String, Object> seen = new TreeMap<>();
    seen.put("body", body);
    seen.put("headers", RpcContext.getServerAttachment().getAttachments());
    HttpRequest told = HttpRequest.newBuilder(script).POST(HttpRequest.BodyPublishers.ofString(JsonUtils.toJson(seen))).build();
    String mood = http.send(told, HttpResponse.BodyHandlers.ofString()).body();
    switch (mood) {
      case "take": return Map.of("code", 0);
      case "echo": return body;
      case "refuse": return Map.of("code", 9);
      case "too large": return "x".repeat(1 << 20);
      case "hang": Thread.sleep(20_000); return null;
      default: throw new IllegalStateException("told to " + mood);
    }
  }
}
