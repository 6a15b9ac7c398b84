package ackbox.sdk;

import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.Map;
import java.util.function.Function;

/** A probe of Ackbox: the question whether a delivery is handled. Its work must not run. */
final class Probe {
  private Probe() {}

  /** The webhook-id of the delivery that it asks about, or null for a delivery. The id counts, and not the header alone: only the id is signed. */
  static String about(Function<String, String> header) {
    String id = header.apply("webhook-id");
    if (!id.startsWith("probe_") && header.apply("ackbox-probe") == null) return null;
    return id.replaceFirst("^probe_", "").replaceFirst("_[0-9]+$", "");
  }

  static Receiver.Answer answer(Connect connect, String consumer, String webhookId) throws SQLException {
    boolean isHandled = Sql.transact(connect, connection -> {
      String read = "select 1 from ackbox_received where consumer = ? and webhook_id = ?";
      try (PreparedStatement statement = connection.prepareStatement(read)) {
        Sql.bind(statement, consumer, webhookId);
        try (ResultSet found = statement.executeQuery()) {
          return found.next();
        }
      }
    });
    return new Receiver.Answer(isHandled ? 200 : 404, Map.of("content-type", "application/json"), "{\"handled\":" + isHandled + "}");
  }
}
