// What SpringOutbox must not let through. Usage: java -cp … Springs.java JDBC_URL

import ackbox.sdk.Task;
import ackbox.sdk.spring.SpringOutbox;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.dao.DataAccessException;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.datasource.DataSourceTransactionManager;
import org.springframework.jdbc.datasource.DriverManagerDataSource;
import org.springframework.jdbc.datasource.TransactionAwareDataSourceProxy;
import org.springframework.transaction.IllegalTransactionStateException;
import org.springframework.transaction.annotation.EnableTransactionManagement;
import org.springframework.transaction.annotation.Transactional;
import org.springframework.transaction.support.TransactionTemplate;

public class Springs {
  static String url;
  static JdbcTemplate jdbc;

  public static void main(String[] args) {
    url = args[0];
    // That of a program in one file: Spring makes its proxies there.
    Thread.currentThread().setContextClassLoader(Springs.class.getClassLoader());
    try (var context = new AnnotationConfigApplicationContext(Config.class)) {
      jdbc = new JdbcTemplate(context.getBean(DriverManagerDataSource.class));
      try {
        context.getBean(Orders.class).pay();
      } catch (DataAccessException refused) {
        System.out.println("refused by the database");
      }
    }
    // The transaction is of another data source, however it is called.
    var other = new TransactionTemplate(new DataSourceTransactionManager(new DriverManagerDataSource(url)));
    try {
      other.executeWithoutResult(status -> new SpringOutbox(jdbc.getDataSource(), null).put(Task.of("order.paid", "{}")));
    } catch (IllegalTransactionStateException refused) {
      System.out.println("refused outside its transaction");
    }
    // The manager looks behind the proxy.
    var own = new TransactionTemplate(new DataSourceTransactionManager(jdbc.getDataSource()));
    own.executeWithoutResult(status -> {
      new SpringOutbox(new TransactionAwareDataSourceProxy(jdbc.getDataSource()), null).put(Task.of("order.paid", "{}"));
      status.setRollbackOnly();
    });
    System.out.println("balance " + jdbc.queryForObject("select balance from account where id = 1", Integer.class));
    System.out.println("rows " + jdbc.queryForObject("select count(*) from ackbox_outbox", Integer.class));
  }

  public interface Orders {
    void pay();
  }

  public static class OutboxOrders implements Orders {
    private final SpringOutbox outbox;

    OutboxOrders(SpringOutbox outbox) {
      this.outbox = outbox;
    }

    /** No database takes this key. */
    @Override
    @Transactional
    public void pay() {
      jdbc.update("update account set balance = balance - 7 where id = 1");
      outbox.put(Task.of("order.paid", "{}").orderingKey("\0".repeat(2_000)));
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
