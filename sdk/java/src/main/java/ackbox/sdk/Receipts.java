package ackbox.sdk;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.function.Function;

/** Receipts, written in the transaction of the work and sent until Ackbox has them. */
public final class Receipts implements Runnable {
  private static final System.Logger LOG = System.getLogger("ackbox.sdk");
  private final Connect connect;
  private final String consumer;
  private final Ackbox ackbox;

  public Receipts(Connect connect, String consumer, Ackbox ackbox) {
    this.connect = connect;
    this.consumer = consumer;
    this.ackbox = ackbox;
  }

  /**
   * For work that goes on after the delivery was answered 202: in the transaction that ends it. {@code header} gives those of the delivery. {@code
   * result}: HANDLED, RETRY, FAILED or PROCESSING. {@code reason} may be null.
   */
  public void write(Connection connection, Function<String, String> header, String result, String reason) throws SQLException {
    Sql.insistOnTransaction(connection);
    String receipt =
        String.format(
            "{\"taskNo\":%s,\"messageCode\":%s,\"result\":%s%s}",
            Json.quote(header.apply("ackbox-task-no")),
            Json.quote(header.apply("ackbox-message-code")),
            Json.quote(result),
            reason == null ? "" : ",\"reason\":" + Json.quote(reason));
    Sql.update(
        connection,
        "insert into ackbox_receipt_outbox (consumer, callback_url, callback_token, receipt) values (?, ?, ?, ?)",
        consumer,
        ackbox.callback(),
        header.apply("ackbox-callback-token"),
        receipt);
  }

  /** Sends receipts until the thread is interrupted. Any number of processes may run it. */
  @Override
  public void run() {
    while (!Thread.currentThread().isInterrupted()) {
      long pauseMs = 200;
      try {
        while (Sql.transact(connect, this::sendDue)) {}
      } catch (Exception away) {
        LOG.log(System.Logger.Level.WARNING, "receipts could not be sent: " + away.getMessage());
        pauseMs = 1_000;
      }
      try {
        Thread.sleep(pauseMs);
      } catch (InterruptedException stopped) {
        return;
      }
    }
  }

  private boolean sendDue(Connection connection) throws SQLException {
    boolean isPostgres = Sql.isPostgres(connection);
    String now = isPostgres ? "clock_timestamp()" : "utc_timestamp(6)";
    String due =
        "select id, callback_token, receipt, tries from ackbox_receipt_outbox where consumer = ? and next_try_at <= "
            + now
            + " order by next_try_at limit 1 for update skip locked";
    try (PreparedStatement look = connection.prepareStatement(due)) {
      Sql.bind(look, consumer);
      try (ResultSet row = look.executeQuery()) {
        if (!row.next()) return false;
        // While it is sent the row is locked: nobody else sends it.
        long id = row.getLong(1);
        // To the address we know: headers are not signed, so one in a header is no proof.
        if (ackbox.isReceiptSent(row.getString(2), row.getString(3)))
          Sql.update(connection, "delete from ackbox_receipt_outbox where id = " + id);
        else {
          long pauseMs = Math.min(60_000, 250L << Math.min(row.getInt(4), 10));
          String later = isPostgres ? " + interval '" + pauseMs + " ms'" : " + interval " + pauseMs * 1_000 + " microsecond";
          Sql.update(connection, "update ackbox_receipt_outbox set tries = tries + 1, next_try_at = " + now + later + " where id = " + id);
        }
        return true;
      }
    }
  }
}
