package ackbox.sdk.spring;

import ackbox.sdk.Ackbox;
import ackbox.sdk.Outbox;
import ackbox.sdk.Task;
import java.sql.Connection;
import java.sql.SQLException;
import java.util.concurrent.CompletableFuture;
import javax.sql.DataSource;
import org.springframework.beans.factory.BeanFactory;
import org.springframework.beans.factory.BeanFactoryAware;
import org.springframework.beans.factory.ListableBeanFactory;
import org.springframework.beans.factory.SmartInitializingSingleton;
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
 * where there is none, or where it is over. What the database refuses is thrown as a {@link DataAccessException}, which rolls back: for a checked
 * exception Spring would commit.
 */
public final class SpringOutbox implements BeanFactoryAware, SmartInitializingSingleton, AutoCloseable {
  /** Bound to the thread from the end of this holder's transaction to the last callback that hears of it. */
  record Ended(Object connectionHolder) {}

  private interface Write {
    String run(Connection connection, Task task) throws SQLException;
  }

  private final DataSource dataSource;
  private final Ackbox ackbox;
  private BeanFactory beans;
  private volatile CompletableFuture<Void> nudged = CompletableFuture.completedFuture(null);

  /** {@code dataSource}: that of the transaction manager. {@code ackbox} is nudged after commits, and may be null: rows are then found within a second. */
  public SpringOutbox(DataSource dataSource, Ackbox ackbox) {
    // The transaction manager looks behind this proxy too.
    this.dataSource =
        dataSource instanceof TransactionAwareDataSourceProxy proxy && proxy.getTargetDataSource() != null ? proxy.getTargetDataSource() : dataSource;
    this.ackbox = ackbox;
  }

  @Override
  public void setBeanFactory(BeanFactory beans) {
    this.beans = beans;
  }

  /** Listens to the transaction managers of the application from now on. */
  @Override
  public void afterSingletonsInstantiated() {
    try {
      if (beans instanceof ListableBeanFactory all) EndedTransactions.watch(all);
    } catch (LinkageError older) {
      // Spring 6.0 and older tell nobody that a transaction has ended.
    }
  }

  /** A row for {@code ackbox relay}. Gives the taskNo. */
  public String put(Task task) {
    return write("put", Outbox::put, task);
  }

  /** Hands the task to an Ackbox in the same PostgreSQL database. After the commit, and never after a rollback, Ackbox is told to look. */
  public String enqueue(Task task) {
    String taskNo = write("enqueue", Outbox::enqueue, task);
    if (ackbox != null && TransactionSynchronizationManager.getSynchronizations().stream().noneMatch(this::isOurs))
      TransactionSynchronizationManager.registerSynchronization(new Nudge());
    return taskNo;
  }

  /** Waits for a hint that is on its way, for 2 s at most. */
  @Override
  public void close() {
    nudged.join();
  }

  private String write(String call, Write write, Task task) {
    insistOnTransaction();
    Connection connection = DataSourceUtils.getConnection(dataSource);
    try {
      return write.run(connection, task);
    } catch (SQLException error) {
      throw unchecked("SpringOutbox." + call, error);
    } finally {
      DataSourceUtils.releaseConnection(connection, dataSource);
    }
  }

  /** Before getConnection, which would bind one of its own to the transaction of another data source. */
  private void insistOnTransaction() {
    Object holder = TransactionSynchronizationManager.getResource(dataSource);
    if (!TransactionSynchronizationManager.isActualTransactionActive() || holder == null)
      throw new IllegalTransactionStateException(
          "no transaction of this data source: the row would be committed by itself, whatever becomes of the work");
    // In afterCommit, afterCompletion and their event listeners Spring goes on to call it active.
    if (!TransactionSynchronizationManager.isSynchronizationActive() || TransactionSynchronizationManager.hasResource(new Ended(holder)))
      throw new IllegalTransactionStateException(
          "the transaction is over: write the row before its end, or in one of its own (REQUIRES_NEW)");
  }

  private static DataAccessException unchecked(String call, SQLException error) {
    DataAccessException known = new SQLExceptionSubclassTranslator().translate(call, null, error);
    return known == null ? new UncategorizedSQLException(call, null, error) : known;
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
