package ackbox.example.library;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.util.Map;
import org.apache.dubbo.config.ApplicationConfig;
import org.apache.dubbo.config.ProtocolConfig;
import org.apache.dubbo.config.RegistryConfig;
import org.apache.dubbo.config.ServiceConfig;
import org.apache.dubbo.config.bootstrap.DubboBootstrap;
import org.apache.dubbo.rpc.RpcContext;

/**
 * The Dubbo service of examples/open-platform: it shelves each material once, by the table {@code ackbox_received} in the transaction of the
 * work. A provider never sees the signed bytes, so only its network can restrict the callers. TRI_PORT JDBC_URL
 */
public class Provider implements Library {
  private static final String JDBC_URL = System.getenv("JDBC_URL");

  @Override
  public Answer onMaterial(Material material) {
    Map<String, Object> seen = RpcContext.getServerAttachment().getObjectAttachments();
    try (Connection connection = DriverManager.getConnection(JDBC_URL)) {
      connection.setAutoCommit(false);
      // Closing without a commit rolls back. An exception is a failure, and Ackbox sends the task again.
      if (isFirst(connection, seen)) shelve(connection, (String) seen.get("ackbox-task-no"), material);
      connection.commit();
    } catch (SQLException error) {
      throw new IllegalStateException(error);
    }
    Answer answer = new Answer();
    answer.shelved = true;
    return answer;
  }

  private static boolean isFirst(Connection connection, Map<String, Object> seen) throws SQLException {
    try (PreparedStatement insert =
        connection.prepareStatement(
            "insert into ackbox_received (consumer, webhook_id, task_no, forget_after) values ('library', ?, ?, cast(? as timestamptz)) on conflict do nothing")) {
      insert.setString(1, (String) seen.get("webhook-id"));
      insert.setString(2, (String) seen.get("ackbox-task-no"));
      insert.setString(3, (String) seen.get("ackbox-forget-after"));
      return insert.executeUpdate() == 1;
    }
  }

  private static void shelve(Connection connection, String taskNo, Material material) throws SQLException {
    try (PreparedStatement insert = connection.prepareStatement("insert into shown (task_no, material, title) values (?, ?, ?)")) {
      insert.setString(1, taskNo);
      insert.setInt(2, material.material);
      insert.setString(3, material.title);
      insert.executeUpdate();
    }
  }

  public static void main(String[] args) {
    ApplicationConfig application = new ApplicationConfig("library");
    application.setQosEnable(false);
    ProtocolConfig triple = new ProtocolConfig("tri", Integer.parseInt(System.getenv().getOrDefault("TRI_PORT", "50051")));
    triple.setHost("127.0.0.1");
    ServiceConfig<Library> service = new ServiceConfig<>();
    service.setInterface(Library.class);
    service.setRef(new Provider());
    service.setRegister(false);
    DubboBootstrap.getInstance()
        .application(application)
        .registry(new RegistryConfig("N/A"))
        .protocol(triple)
        .service(service)
        .start();
    System.out.println("library is ready on " + triple.getPort());
    DubboBootstrap.getInstance().await();
  }
}
