// Package main shows the producer's end in Go: one row in the transaction that the task tells of.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
)

// Task is what the table ackbox_outbox must be told; its other columns may be left out.
type Task struct {
	TaskNo      string
	MessageCode string
	Body        any
}

// A *sql.Tx and nothing else: with a *sql.DB the row would be committed by itself, whatever becomes of the work.

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

// Enqueue hands the task to an Ackbox that lives in the same PostgreSQL database.
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
