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
import org.springframework.transaction.annotation.EnableTransactionManagement;
import org.springframework.transaction.annotation.Transactional;

public class Springs {
  static String url;
  static JdbcTemplate jdbc;

  public static void main(String[] args) {
    url = args[0];
    try (var context = new AnnotationConfigApplicationContext(Config.class)) {
      jdbc = new JdbcTemplate(context.getBean(DriverManagerDataSource.class));
      try {
        context.getBean(Orders.class).pay();
      } catch (DataAccessException refused) {
        System.out.println("refused by the database");
      }
    }
    System.out.println("balance " + jdbc.queryForObject("select balance from account where id = 1", Integer.class));
    System.out.println("rows " + jdbc.queryForObject("select count(*) from ackbox_outbox", Integer.class));
  }

  public static class Orders {
    private final SpringOutbox outbox;

    Orders(SpringOutbox outbox) {
      this.outbox = outbox;
    }

    /** No database takes this key. */
    @Transactional
    public void pay() {
      jdbc.update("update account set balance = balance - 7 where id = 1");
      outbox.put(Task.of("order.paid", "{}").orderingKey("\0".repeat(2_000)));
    }
  }

  @Configuration
  @EnableTransactionManagement(proxyTargetClass = true)
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
      return new Orders(outbox);
    }
  }
}
