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

// Which came first: the transaction of a half message, or the check that asked for it. Both insert the same key into ackbox_barrier, and a
// database lets one of them in. So a check answered ROLLED_BACK stays true: the transaction that comes after it finds the row and fails.
// The tables: npx ackbox relay --print-ddl postgres|mysql

// Barrier is for a database that IsPostgres, else MySQL or MariaDB.
type Barrier struct {
	DB         *sql.DB
	IsPostgres bool
}

const (
	committed  = "COMMITTED"
	rolledBack = "ROLLED_BACK"
	unknown    = "UNKNOWN"
	// Rows of the barrier may be deleted after 30 days: a day less, for clocks that differ.
	horizon = 29 * 24 * time.Hour
)

// ErrDecided says that the key is in the barrier already: the transaction must not commit.
var ErrDecided = errors.New("the half message is decided: its check was answered ROLLED_BACK, or a transaction has committed it before")

// Prepared is the first statement of the transaction that a half message tells of: from here on a check waits for its end.
// The transaction must end with the error that it gives.
func (b Barrier) Prepared(ctx context.Context, tx *sql.Tx, taskNo string) error {
	_, err := tx.ExecContext(ctx, b.marked(`insert into ackbox_barrier (task_no, state) values (?, 'COMMITTED')`), taskNo)
	if code(err) == "23505" || code(err) == "1062" {
		return fmt.Errorf("%w: %s", ErrDecided, taskNo)
	}
	return err
}

// StillPrepared fails unless the key is still there: a transaction that the database has ended may tell no one at COMMIT.
func (b Barrier) StillPrepared(ctx context.Context, tx *sql.Tx, taskNo string) error {
	var state string
	return tx.QueryRowContext(ctx, b.marked(`select state from ackbox_barrier where task_no = ?`), taskNo).Scan(&state)
}

// AnswerCheck answers Ackbox's check, on the primary. UNKNOWN: the transaction is still under way, or so old that its row may be gone.
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
		// A statement of its own: the first one cannot see what was committed while it waited.
		err = conn.QueryRowContext(ctx, b.marked(`select state from ackbox_barrier where task_no = ?`), taskNo).Scan(&state)
	}
	switch code(err) {
	case "55P03", "40P01", "40001", "1205", "1213": // a lock that the transaction holds, a deadlock, a snapshot older than its commit
		return unknown, nil
	}
	if errors.Is(err, sql.ErrNoRows) {
		return unknown, nil
	}
	return state, err
}

// Prune deletes the rows that no check needs any more. Once a day.
func (b Barrier) Prune(ctx context.Context) error {
	if b.IsPostgres {
		_, err := b.DB.ExecContext(ctx, `delete from ackbox_barrier where created_at < now() - interval '30 days'`)
		return err
	}
	// A look without a lock, and then by key: else MySQL reads the whole of a small table, and waits for transactions still open.
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
	// The pool may hold this one connection: the look gives it back first.
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
		// One statement is its own transaction here: the limit ends with it.
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

// marked has the placeholder of the database: none here has more than one.
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
