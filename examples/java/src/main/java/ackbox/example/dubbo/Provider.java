package ackbox.example.dubbo;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.dubbo.config.ApplicationConfig;
import org.apache.dubbo.config.ProtocolConfig;
import org.apache.dubbo.config.RegistryConfig;
import org.apache.dubbo.config.ServiceConfig;
import org.apache.dubbo.config.bootstrap.DubboBootstrap;
import org.apache.dubbo.rpc.RpcContext;

/** A Dubbo service as a downstream: it does each delivery once, and sends its receipt where one is owed. TRI_PORT=50051 */
public class Provider implements Points {
  /** In a real service: a table, written in the same transaction as the points. */
  private final Set<String> done = ConcurrentHashMap.newKeySet();
  private final HttpClient http = HttpClient.newHttpClient();

  @Override
  public Answer onShipped(Shipment shipment) {
    Map<String, Object> seen = RpcContext.getServerAttachment().getObjectAttachments();
    if (done.add((String) seen.get("webhook-id"))) {
      System.out.println("points of " + shipment.userId + " for " + shipment.orderId + ": " + shipment.cents / 100);
    }
    // Also for one that came before: its first receipt may have been lost.
    if (seen.get("ackbox-callback-token") != null) sendReceipt(seen);
    Answer answer = new Answer();
    answer.taken = true;
    return answer;
  }

  private void sendReceipt(Map<String, Object> seen) {
    String body = "{\"taskNo\":\"" + seen.get("ackbox-task-no") + "\",\"messageCode\":\"" + seen.get("ackbox-message-code") + "\"}";
    HttpRequest request = HttpRequest.newBuilder(URI.create((String) seen.get("ackbox-callback-url")))
        .header("content-type", "application/json")
        .header("ackbox-callback-token", (String) seen.get("ackbox-callback-token"))
        .POST(HttpRequest.BodyPublishers.ofString(body))
        .build();
    // In a real service: from a table, again and again until it is answered.
    http.sendAsync(request, HttpResponse.BodyHandlers.discarding());
  }

  public static void main(String[] args) {
    ApplicationConfig application = new ApplicationConfig("points");
    application.setQosEnable(false);
    ProtocolConfig triple = new ProtocolConfig("tri", Integer.parseInt(System.getenv().getOrDefault("TRI_PORT", "50051")));
    triple.setHost("127.0.0.1");
    ServiceConfig<Points> service = new ServiceConfig<>();
    service.setInterface(Points.class);
    service.setRef(new Provider());
    service.setRegister(false);
    DubboBootstrap.getInstance()
        .application(application)
        .registry(new RegistryConfig("N/A"))
        .protocol(triple)
        .service(service)
        .start();
    System.out.println("listening on " + triple.getPort());
    DubboBootstrap.getInstance().await();
  }
}
