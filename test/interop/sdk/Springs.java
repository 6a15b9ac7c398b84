// The calls that SpringOutbox must refuse. Usage: java -cp … Springs.java JDBC_URL

import ackbox.sdk.Task;
import ackbox.sdk.spring.SpringOutbox;
import java.sql.Connection;
import java.sql.SQLException;
import java.time.Instant;
import java.util.List;
import java.util.Properties;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.dao.DataAccessException;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.datasource.DataSourceTransactionManager;
import org.springframework.jdbc.datasource.DriverManagerDataSource;
import org.springframework.jdbc.datasource.TransactionAwareDataSourceProxy;
import org.springframework.transaction.IllegalTransactionStateException;
import org.springframework.transaction.TransactionDefinition;
import org.springframework.transaction.annotation.EnableTransactionManagement;
import org.springframework.transaction.annotation.Transactional;
import org.springframework.transaction.support.TransactionSynchronization;
import org.springframework.transaction.support.TransactionSynchronizationManager;
import org.springframework.transaction.support.TransactionTemplate;

public class Springs {
  static String url;
  static JdbcTemplate jdbc;

  public static void main(String[] args) {
    url = args[0];
    // The class loader of a single-file program: Spring needs it to make its proxies.
    Thread.currentThread().setContextClassLoader(Springs.class.getClassLoader());
    try (var context = new AnnotationConfigApplicationContext(Config.class)) {
      jdbc = new JdbcTemplate(context.getBean(DriverManagerDataSource.class));
      try {
        context.getBean(Orders.class).pay();
      } catch (DataAccessException refused) {
        System.out.println("refused by the database");
      }
      late(context.getBean(SpringOutbox.class), context.getBean(DataSourceTransactionManager.class));
    }
    // The transaction belongs to another data source, though with the same URL.
    var other = new TransactionTemplate(new DataSourceTransactionManager(new DriverManagerDataSource(url)));
    try {
      other.executeWithoutResult(status -> new SpringOutbox(jdbc.getDataSource(), null).put(Task.of("order.paid", "{}")));
    } catch (IllegalTransactionStateException refused) {
      System.out.println("refused outside its transaction");
    }
    // The transaction manager uses the data source behind the proxy.
    var own = new TransactionTemplate(new DataSourceTransactionManager(jdbc.getDataSource()));
    own.executeWithoutResult(status -> {
      new SpringOutbox(new TransactionAwareDataSourceProxy(jdbc.getDataSource()), null).put(Task.of("order.paid", "{}"));
      status.setRollbackOnly();
    });
    // A pool whose connections already have autocommit off.
    var manual = new DriverManagerDataSource(url) {
      @Override
      protected Connection getConnectionFromDriver(Properties given) throws SQLException {
        Connection connection = super.getConnectionFromDriver(given);
        connection.setAutoCommit(false);
        return connection;
      }
    };
    new TransactionTemplate(new DataSourceTransactionManager(manual))
        .executeWithoutResult(status -> write("without autocommit", new SpringOutbox(manual, null)));
    System.out.println("balance " + jdbc.queryForObject("select balance from account where id = 1", Integer.class));
    System.out.println("rows " + jdbc.queryForObject("select count(*) from ackbox_outbox", Integer.class));
  }

  /** Writes in the callbacks of a transaction. Spring reports it as active until the last callback has run. */
  static void late(SpringOutbox outbox, DataSourceTransactionManager manager) {
    var joined = new TransactionTemplate(manager);
    var other = with(manager, TransactionDefinition.PROPAGATION_REQUIRES_NEW);
    var savepoint = with(manager, TransactionDefinition.PROPAGATION_NESTED);
    for (boolean isCommitted : List.of(true, false))
      joined.executeWithoutResult(status -> {
        savepoint.executeWithoutResult(inner -> {});
        write("before the end", outbox);
        TransactionSynchronizationManager.registerSynchronization(new TransactionSynchronization() {
          @Override
          public void beforeCompletion() {
            write("beforeCompletion", outbox);
          }

          @Override
          public void afterCommit() {
            write("afterCommit", outbox);
            other.executeWithoutResult(own -> write("afterCommit, in one of its own", outbox));
            write("afterCommit, again", outbox);
          }

          @Override
          public void afterCompletion(int status) {
            write("afterCompletion", outbox);
            joined.executeWithoutResult(ended -> write("afterCompletion, @Transactional", outbox));
            other.executeWithoutResult(own -> write("afterCompletion, in one of its own", outbox));
          }
        });
        if (!isCommitted) status.setRollbackOnly();
      });
    joined.executeWithoutResult(status -> write("in the next one", outbox));
    if (!TransactionSynchronizationManager.getResourceMap().isEmpty()) System.out.println("left: " + TransactionSynchronizationManager.getResourceMap());
  }

  static TransactionTemplate with(DataSourceTransactionManager manager, int propagation) {
    var template = new TransactionTemplate(manager);
    template.setPropagationBehavior(propagation);
    return template;
  }

  static void write(String when, SpringOutbox outbox) {
    try {
      outbox.put(Task.of("order.paid", "{}"));
      System.out.println(when + ": taken");
    } catch (IllegalTransactionStateException refused) {
      System.out.println(when + ": refused");
    }
  }

  public interface Orders {
    void pay();
  }

  public static class OutboxOrders implements Orders {
    private final SpringOutbox outbox;

    OutboxOrders(SpringOutbox outbox) {
      this.outbox = outbox;
    }

    /** Neither database has a year 300000. */
    @Override
    @Transactional
    public void pay() {
      jdbc.update("update account set balance = balance - 7 where id = 1");
      outbox.put(Task.of("order.paid", "{}").deliverStartTime(Instant.parse("+300000-01-01T00:00:00Z")));
    }
  }

  @Configuration(proxyBeanMethods = false)
  @EnableTransactionManagement
  public static class Config {
    @Bean
    DriverManagerDataSource dataSource() {
      return new DriverManagerDataSource(url);
    }

    @Bean
    DataSourceTransactionManager transactions(DriverManagerDataSource dataSource) {
      return new DataSourceTransactionManager(dataSource);
    }

    @Bean
    SpringOutbox outbox(DriverManagerDataSource dataSource) {
      return new SpringOutbox(dataSource, null);
    }

    @Bean
    Orders orders(SpringOutbox outbox) {
      return new OutboxOrders(outbox);
    }
  }
}
