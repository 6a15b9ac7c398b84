package ackbox.sdk;

import java.sql.Connection;
import java.sql.SQLException;

/**
 * Opens a connection of its own to PostgreSQL, MySQL or MariaDB: {@code dataSource::getConnection}. Not one that a transaction of yours is under
 * way on, as Spring's TransactionAwareDataSourceProxy hands out.
 */
@FunctionalInterface
public interface Connect {
  Connection open() throws SQLException;
}
