package ackbox.example;

import ackbox.sdk.Ackbox;
import ackbox.sdk.Task;
import ackbox.sdk.spring.SpringOutbox;
import javax.sql.DataSource;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.datasource.DataSourceTransactionManager;
import org.springframework.jdbc.datasource.DriverManagerDataSource;
import org.springframework.transaction.annotation.EnableTransactionManagement;
import org.springframework.transaction.annotation.Transactional;

/**
 * Spring. Pays order 1 and order 2; the card of order 2 is refused after its row was written. Usage: SpringShop outbox JDBC_URL, or
 * SpringShop enqueue JDBC_URL ACKBOX_URL
 */
public final class SpringShop {
    public static void main(String[] args) {
        Config.url = args[1];
        Config.ackbox = args[0].equals("enqueue") ? new Ackbox(args[2], null) : null;
        try (var context = new AnnotationConfigApplicationContext(Config.class)) {
            Orders orders = context.getBean(Orders.class);
            orders.pay("spring-1", true);
            try {
                orders.pay("spring-2", false);
            } catch (IllegalStateException refused) {
                System.out.println("refused: " + refused.getMessage());
            }
            try {
                context.getBean(SpringOutbox.class).put(task("spring-0"));
            } catch (RuntimeException refused) {
                System.out.println("refused: " + refused.getMessage());
            }
        }
    }

    static Task task(String taskNo) {
        return Task.of("order.paid", Shop.BODY).taskNo(taskNo);
    }

    static class Orders {
        private final JdbcTemplate jdbc;
        private final SpringOutbox outbox;

        Orders(JdbcTemplate jdbc, SpringOutbox outbox) {
            this.jdbc = jdbc;
            this.outbox = outbox;
        }

        @Transactional
        public void pay(String taskNo, boolean isCardGood) {
            jdbc.update(Shop.PAY);
            if (Config.ackbox == null) outbox.put(task(taskNo));
            else outbox.enqueue(task(taskNo));
            if (!isCardGood) throw new IllegalStateException("the card was refused");
        }
    }

    @Configuration
    @EnableTransactionManagement(proxyTargetClass = true)
    static class Config {
        static String url;
        static Ackbox ackbox;

        @Bean
        DataSource dataSource() {
            return new DriverManagerDataSource(url);
        }

        @Bean
        DataSourceTransactionManager transactions(DataSource dataSource) {
            return new DataSourceTransactionManager(dataSource);
        }

        @Bean
        JdbcTemplate jdbc(DataSource dataSource) {
            return new JdbcTemplate(dataSource);
        }

        @Bean
        SpringOutbox outbox(DataSource dataSource) {
            return new SpringOutbox(dataSource, ackbox);
        }

        @Bean
        Orders orders(JdbcTemplate jdbc, SpringOutbox outbox) {
            return new Orders(jdbc, outbox);
        }
    }
}
