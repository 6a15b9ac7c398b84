package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/lib/pq"
)

// Usage: go run . postgres|mysql|enqueue DSN. It pays order 1 and commits, and pays order 2 and rolls back.
// Usage: go run . half postgres|mysql. It serves a shop of half messages.
func main() {
	if os.Args[1] == "half" {
		serveHalf(os.Args[2])
		return
	}
	way, dsn := os.Args[1], os.Args[2]
	driver := map[string]string{"postgres": "postgres", "enqueue": "postgres", "mysql": "mysql"}[way]
	put := map[string]func(context.Context, *sql.Tx, Task) error{
		"postgres": OutboxPostgres, "mysql": OutboxMySQL, "enqueue": Enqueue,
	}[way]
	db, err := sql.Open(driver, dsn)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	ctx := context.Background()
	for number, outcome := range []error{nil, errors.New("the card was refused")} {
		task := Task{
			TaskNo:      fmt.Sprintf("go-%s-%d", way, number+1),
			MessageCode: "order.paid",
			Body:        map[string]any{"note": "né à Zürich, 支付", "total": 7},
		}
		err := inTransaction(ctx, db, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, `update account set balance = balance - 7 where id = 1`); err != nil {
				return err
			}
			if err := put(ctx, tx, task); err != nil {
				return err
			}
			return outcome
		})
		if err != nil && err != outcome {
			log.Fatal(err)
		}
		fmt.Println(task.TaskNo, err)
	}
}

func inTransaction(ctx context.Context, db *sql.DB, work func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // no effect after a commit
	if err := work(tx); err != nil {
		return err
	}
	return tx.Commit()
}
