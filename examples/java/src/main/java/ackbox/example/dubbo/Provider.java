package ackbox.example.dubbo;

import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.dubbo.config.ApplicationConfig;
import org.apache.dubbo.config.ProtocolConfig;
import org.apache.dubbo.config.RegistryConfig;
import org.apache.dubbo.config.ServiceConfig;
import org.apache.dubbo.config.bootstrap.DubboBootstrap;
import org.apache.dubbo.rpc.RpcContext;

/** A Dubbo service as a downstream: it handles each delivery once, and its return value is the receipt. TRI_PORT=50051 */
public class Provider implements Points {
  // In memory for the example. In production: a table with webhook-id as its key, written in the transaction of the points.
  private final Set<String> done = new HashSet<>();

  @Override
  public Answer onShipped(Shipment shipment) {
    Map<String, Object> seen = RpcContext.getServerAttachment().getObjectAttachments();
    shipOnce((String) seen.get("webhook-id"), shipment);
    Answer answer = new Answer();
    answer.taken = true;
    return answer;
  }

  /** One at a time: a duplicate that arrives during the work must not be answered as done. */
  private synchronized void shipOnce(String id, Shipment shipment) {
    if (done.contains(id)) return;
    System.out.println("points of " + shipment.userId + " for " + shipment.orderId + ": " + shipment.cents / 100);
    done.add(id);
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
