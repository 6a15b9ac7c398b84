package ackbox.example;

import javax.sql.DataSource;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.datasource.DataSourceTransactionManager;
import org.springframework.jdbc.datasource.DriverManagerDataSource;
import org.springframework.transaction.annotation.EnableTransactionManagement;
import org.springframework.transaction.annotation.Propagation;
import org.springframework.transaction.annotation.Transactional;

/** Spring. Pays order 1, and order 2 whose card is refused after its row was written. Usage: SpringShop JDBC_URL */
public final class SpringShop {
    public static void main(String[] args) {
        Config.url = args[0];
        try (var context = new AnnotationConfigApplicationContext(Config.class)) {
            Orders orders = context.getBean(Orders.class);
            orders.pay("spring-1", true);
            try {
                orders.pay("spring-2", false);
            } catch (IllegalStateException refused) {
                System.out.println("refused: " + refused.getMessage());
            }
            try {
                context.getBean(SpringOutbox.class).put("spring-0", "order.paid", Shop.BODY);
            } catch (RuntimeException refused) {
                System.out.println("refused: " + refused.getMessage());
            }
        }
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
            outbox.put(taskNo, "order.paid", Shop.BODY);
            if (!isCardGood) throw new IllegalStateException("the card was refused");
        }
    }

    static class SpringOutbox {
        private final JdbcTemplate jdbc;

        SpringOutbox(JdbcTemplate jdbc) {
            this.jdbc = jdbc;
        }

        /** MANDATORY: without a transaction of the caller's it throws, and nothing is written. */
        @Transactional(propagation = Propagation.MANDATORY)
        public void put(String taskNo, String messageCode, String body) {
            jdbc.update("insert into ackbox_outbox (task_no, message_code, message_body) values (?, ?, ?)", taskNo, messageCode, body);
        }
    }

    @Configuration
    @EnableTransactionManagement(proxyTargetClass = true)
    static class Config {
        static String url;

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
        SpringOutbox outbox(JdbcTemplate jdbc) {
            return new SpringOutbox(jdbc);
        }

        @Bean
        Orders orders(JdbcTemplate jdbc, SpringOutbox outbox) {
            return new Orders(jdbc, outbox);
        }
    }
}
