package ackbox.sdk.spring;

import ackbox.sdk.Ackbox;
import ackbox.sdk.Outbox;
import ackbox.sdk.Task;
import java.sql.Connection;
import java.sql.SQLException;
import java.util.concurrent.CompletableFuture;
import javax.sql.DataSource;
import org.springframework.dao.DataAccessException;
import org.springframework.jdbc.UncategorizedSQLException;
import org.springframework.jdbc.datasource.DataSourceUtils;
import org.springframework.jdbc.datasource.TransactionAwareDataSourceProxy;
import org.springframework.jdbc.support.SQLExceptionSubclassTranslator;
import org.springframework.transaction.IllegalTransactionStateException;
import org.springframework.transaction.support.TransactionSynchronization;
import org.springframework.transaction.support.TransactionSynchronizationManager;

/**
 * The {@link Outbox} inside {@code @Transactional}: a bean of the application's. It takes the connection of the transaction that is under way, and throws
 * where there is none. What the database refuses is thrown as a {@link DataAccessException}, which rolls back: for a checked exception Spring would commit.
 */
public final class SpringOutbox implements AutoCloseable {
  private final DataSource dataSource;
  private final Ackbox ackbox;
  private volatile CompletableFuture<Void> nudged = CompletableFuture.completedFuture(null);

  /** {@code dataSource}: that of the transaction manager. {@code ackbox} is nudged after commits, and may be null: rows are then found within a second. */
  public SpringOutbox(DataSource dataSource, Ackbox ackbox) {
    // The transaction manager looks behind this proxy too.
    this.dataSource =
        dataSource instanceof TransactionAwareDataSourceProxy proxy && proxy.getTargetDataSource() != null ? proxy.getTargetDataSource() : dataSource;
    this.ackbox = ackbox;
  }

  /** A row for {@code ackbox relay}. Gives the taskNo. */
  public String put(Task task) {
    try {
      return Outbox.put(connection(), task);
    } catch (SQLException error) {
      throw unchecked("put", error);
    }
  }

  /** Hands the task to an Ackbox in the same PostgreSQL database. After the commit, and never after a rollback, Ackbox is told to look. */
  public String enqueue(Task task) {
    String taskNo;
    try {
      taskNo = Outbox.enqueue(connection(), task);
    } catch (SQLException error) {
      throw unchecked("enqueue", error);
    }
    if (ackbox != null && TransactionSynchronizationManager.getSynchronizations().stream().noneMatch(this::isOurs))
      TransactionSynchronizationManager.registerSynchronization(new Nudge());
    return taskNo;
  }

  /** Waits for a hint that is on its way, for 2 s at most. */
  @Override
  public void close() {
    nudged.join();
  }

  private Connection connection() {
    // Asked for first: getConnection would bind one of its own to the transaction of another data source.
    if (!TransactionSynchronizationManager.isActualTransactionActive() || TransactionSynchronizationManager.getResource(dataSource) == null)
      throw new IllegalTransactionStateException(
          "no transaction of this data source: the row would be committed by itself, whatever becomes of the work");
    return DataSourceUtils.getConnection(dataSource);
  }

  private static DataAccessException unchecked(String call, SQLException error) {
    String what = "SpringOutbox." + call;
    DataAccessException known = new SQLExceptionSubclassTranslator().translate(what, null, error);
    return known == null ? new UncategorizedSQLException(what, null, error) : known;
  }

  private boolean isOurs(TransactionSynchronization each) {
    return each instanceof Nudge nudge && nudge.outbox() == this;
  }

  /** Once for a transaction, however many rows it has. */
  private final class Nudge implements TransactionSynchronization {
    SpringOutbox outbox() {
      return SpringOutbox.this;
    }

    @Override
    public void afterCommit() {
      nudged = ackbox.nudge();
    }
  }
}
