package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/lib/pq"
)

// The barrier decides which came first: the transaction of a half message, or its check. Both insert the same key into ackbox_barrier, and
// only one insert succeeds. So the answer ROLLED_BACK stays true: a transaction that comes after it finds the row and fails.
// The tables: npx ackbox relay --print-ddl postgres|mysql

// Barrier works on PostgreSQL if IsPostgres, else on MySQL or MariaDB.
type Barrier struct {
	DB         *sql.DB
	IsPostgres bool
}

const (
	committed  = "COMMITTED"
	rolledBack = "ROLLED_BACK"
	unknown    = "UNKNOWN"
	// Rows of the barrier may be deleted after 30 days; one day less allows for clocks that differ.
	horizon = 29 * 24 * time.Hour
)

// ErrDecided means that the key is in the barrier already: the transaction must not commit.
var ErrDecided = errors.New("the half message is decided: its check was answered ROLLED_BACK, or a transaction has committed it before")

// Prepared must be the first statement of the transaction of a half message: from here on a check waits until the transaction ends.
// If it returns an error, the transaction must fail with it.
func (b Barrier) Prepared(ctx context.Context, tx *sql.Tx, taskNo string) error {
	_, err := tx.ExecContext(ctx, b.marked(`insert into ackbox_barrier (task_no, state) values (?, 'COMMITTED')`), taskNo)
	if code(err) == "23505" || code(err) == "1062" {
		return fmt.Errorf("%w: %s", ErrDecided, taskNo)
	}
	return err
}

// StillPrepared fails unless the key still exists: the COMMIT of a transaction that the database has ended may return no error.
func (b Barrier) StillPrepared(ctx context.Context, tx *sql.Tx, taskNo string) error {
	var state string
	return tx.QueryRowContext(ctx, b.marked(`select state from ackbox_barrier where task_no = ?`), taskNo).Scan(&state)
}

// AnswerCheck answers Ackbox's check, on the primary. UNKNOWN: the transaction is still open, or so old that its row may be deleted.
func (b Barrier) AnswerCheck(ctx context.Context, taskNo string, preparedAt time.Time) (string, error) {
	conn, err := b.DB.Conn(ctx)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if preparedAt.After(time.Now().Add(-horizon)) {
		err = b.rollBackUnlessThere(ctx, conn, taskNo)
	}
	state := unknown
	if err == nil {
		// A separate statement: the insert cannot see a row that was committed while it waited.
		err = conn.QueryRowContext(ctx, b.marked(`select state from ackbox_barrier where task_no = ?`), taskNo).Scan(&state)
	}
	switch code(err) {
	case "55P03", "40P01", "40001", "1020", "1205", "1213": // a lock that the transaction holds, a deadlock, a snapshot older than its commit
		return unknown, nil
	}
	if errors.Is(err, sql.ErrNoRows) {
		return unknown, nil
	}
	return state, err
}

// Prune deletes the rows that no check needs any more. Call it once a day.
func (b Barrier) Prune(ctx context.Context) error {
	if b.IsPostgres {
		_, err := b.DB.ExecContext(ctx, `delete from ackbox_barrier where created_at < now() - interval '30 days'`)
		return err
	}
	// A read without a lock, then a delete by key: else MySQL reads all of a small table, and waits for open transactions.
	rows, err := b.DB.QueryContext(ctx, `select task_no from ackbox_barrier force index (ackbox_barrier_created_idx)
		where created_at < now() - interval 30 day`)
	if err != nil {
		return err
	}
	var old []string
	for rows.Next() {
		var taskNo string
		if err := rows.Scan(&taskNo); err != nil {
			rows.Close()
			return err
		}
		old = append(old, taskNo)
	}
	// The pool may have only one connection: the rows must be read to the end first, which frees it.
	if err := rows.Err(); err != nil {
		return err
	}
	for _, taskNo := range old {
		if _, err := b.DB.ExecContext(ctx, `delete from ackbox_barrier where task_no = ?`, taskNo); err != nil {
			return err
		}
	}
	return nil
}

func (b Barrier) rollBackUnlessThere(ctx context.Context, conn *sql.Conn, taskNo string) error {
	if b.IsPostgres {
		// This statement is its own transaction: the lock timeout ends with it.
		_, err := conn.ExecContext(ctx, `insert into ackbox_barrier (task_no, state)
			select $1::text, 'ROLLED_BACK' from (select set_config('lock_timeout', '2s', true) as s offset 0) l where s is not null
			on conflict do nothing`, taskNo)
		return err
	}
	var before int
	if err := conn.QueryRowContext(ctx, `select @@session.innodb_lock_wait_timeout`).Scan(&before); err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, `set session innodb_lock_wait_timeout = 2`); err != nil {
		return err
	}
	_, err := conn.ExecContext(ctx, `insert ignore into ackbox_barrier (task_no, state) values (?, 'ROLLED_BACK')`, taskNo)
	if _, reset := conn.ExecContext(ctx, fmt.Sprintf(`set session innodb_lock_wait_timeout = %d`, before)); err == nil {
		err = reset
	}
	return err
}

// marked replaces the placeholder by that of the database: no query here has more than one.
func (b Barrier) marked(query string) string {
	if !b.IsPostgres {
		return query
	}
	for i, each := range query {
		if each == '?' {
			return query[:i] + "$1" + query[i+1:]
		}
	}
	return query
}

func code(err error) string {
	var postgres *pq.Error
	if errors.As(err, &postgres) {
		return string(postgres.Code)
	}
	var other *mysql.MySQLError
	if errors.As(err, &other) {
		return fmt.Sprint(other.Number)
	}
	return ""
}
