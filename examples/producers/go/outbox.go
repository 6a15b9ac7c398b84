// Package main shows the producer's side in Go: one row, in the transaction of the business change.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
)

// Task has the required columns of the table ackbox_outbox; its other columns may be left out.
type Task struct {
	TaskNo      string
	MessageCode string
	Body        any
}

// The functions accept only a *sql.Tx: with a *sql.DB the row would be committed on its own, even if the work fails.

// OutboxPostgres writes the task into the producer's own PostgreSQL, for `ackbox relay`.
func OutboxPostgres(ctx context.Context, tx *sql.Tx, task Task) error {
	body, err := json.Marshal(task.Body)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx,
		`insert into ackbox_outbox (task_no, message_code, message_body) values ($1, $2, $3)`,
		task.TaskNo, task.MessageCode, string(body))
	return err
}

// OutboxMySQL writes the task into the producer's own MySQL or MariaDB, for `ackbox relay`.
func OutboxMySQL(ctx context.Context, tx *sql.Tx, task Task) error {
	body, err := json.Marshal(task.Body)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx,
		`insert into ackbox_outbox (task_no, message_code, message_body) values (?, ?, ?)`,
		task.TaskNo, task.MessageCode, string(body))
	return err
}

// Enqueue passes the task to an Ackbox in the same PostgreSQL database.
func Enqueue(ctx context.Context, tx *sql.Tx, task Task) error {
	body, err := json.Marshal(task.Body)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx,
		`select ackbox_api.enqueue(message_code => $1, message_body => $2::text, task_no => $3)`,
		task.MessageCode, string(body), task.TaskNo)
	return err
}
