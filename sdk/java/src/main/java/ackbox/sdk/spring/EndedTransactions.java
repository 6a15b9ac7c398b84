package ackbox.sdk.spring;

import org.springframework.beans.factory.BeanFactoryUtils;
import org.springframework.beans.factory.ListableBeanFactory;
import org.springframework.jdbc.datasource.JdbcTransactionObjectSupport;
import org.springframework.transaction.ConfigurableTransactionManager;
import org.springframework.transaction.TransactionExecution;
import org.springframework.transaction.TransactionExecutionListener;
import org.springframework.transaction.support.DefaultTransactionStatus;
import org.springframework.transaction.support.TransactionSynchronization;
import org.springframework.transaction.support.TransactionSynchronizationManager;

/**
 * Which transactions have ended. Spring calls them active, and keeps their connection at hand, until the last afterCommit, afterCompletion and event
 * listener has run. Only its managers tell their listeners when they commit and roll back, since Spring 6.1.
 */
final class EndedTransactions implements TransactionExecutionListener {
  private EndedTransactions() {}

  static void watch(ListableBeanFactory beans) {
    BeanFactoryUtils.beansOfTypeIncludingAncestors(beans, ConfigurableTransactionManager.class, true, false)
        .values()
        .forEach(manager -> manager.addListener(new EndedTransactions()));
  }

  @Override
  public void beforeCommit(TransactionExecution transaction) {
    end(transaction);
  }

  @Override
  public void beforeRollback(TransactionExecution transaction) {
    end(transaction);
  }

  private static void end(TransactionExecution transaction) {
    // One that is not new ends at a savepoint, or with the transaction around it.
    if (!transaction.isNewTransaction() || !TransactionSynchronizationManager.isSynchronizationActive()) return;
    if (!(transaction instanceof DefaultTransactionStatus status)) return;
    if (!(status.getTransaction() instanceof JdbcTransactionObjectSupport jdbc) || !jdbc.hasConnectionHolder()) return;
    SpringOutbox.Ended ended = new SpringOutbox.Ended(jdbc.getConnectionHolder());
    if (TransactionSynchronizationManager.hasResource(ended)) return; // told by the listener of another SpringOutbox
    TransactionSynchronizationManager.bindResource(ended, true);
    TransactionSynchronizationManager.registerSynchronization(new TransactionSynchronization() {
      @Override
      public void afterCompletion(int status) {
        TransactionSynchronizationManager.unbindResourceIfPossible(ended);
      }
    });
  }
}
