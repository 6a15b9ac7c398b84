package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// Ackbox is the client for half messages.
type Ackbox struct {
	URL, Key string
	Client   *http.Client
}

// TaskAnswer has some members of Ackbox's answer about a task.
type TaskAnswer struct {
	TaskNo    string    `json:"taskNo"`
	Status    string    `json:"status"`
	CreatedAt time.Time `json:"createdAt"`
}

// Refused is an answer of Ackbox other than 2xx.
type Refused struct {
	Status int
	Code   string `json:"code"`
}

func (r *Refused) Error() string { return fmt.Sprintf("Ackbox answered %d %s", r.Status, r.Code) }

// ErrUnclear means that it is not known yet whether the transaction committed. Ackbox repeats the check until it is known.
var ErrUnclear = errors.New("whether the transaction committed is not known yet: Ackbox asks the check")

// ErrCommitRefused means that the transaction has committed and must not run again, but Ackbox refused to commit the message.
var ErrCommitRefused = errors.New("the transaction has committed and must not run again, but Ackbox refused to commit the half message")

// HalfMessage prepares the message, runs work in a transaction that begins with the barrier, and commits the message. If work fails, its
// transaction and the message are rolled back. If the answer to the commit is lost, Ackbox's check decides; it is requested at once.
func HalfMessage(ctx context.Context, ackbox Ackbox, barrier Barrier, task Task, work func(*sql.Tx) error) error {
	half, err := ackbox.prepare(ctx, task)
	if err != nil {
		return err
	}
	if half.Status != "PREPARED" {
		return fmt.Errorf("%w: %s is %s", ErrDecided, task.TaskNo, half.Status)
	}
	isDone := false // once true, the transaction may be committed, even after an error
	err = inTransaction(ctx, barrier.DB, func(tx *sql.Tx) error {
		if err := barrier.Prepared(ctx, tx, task.TaskNo); err != nil {
			return err
		}
		if err := work(tx); err != nil {
			return err
		}
		if err := barrier.StillPrepared(ctx, tx, task.TaskNo); err != nil {
			return err
		}
		isDone = true
		return nil
	})
	// The half message is finished even if the caller's context has ended.
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err == nil {
		// The work is committed: it is no error if Ackbox cannot be reached now. Its check finds the commit.
		if err := ackbox.commit(ctx, task.TaskNo); isRefusal(err) {
			return fmt.Errorf("%w (%v)", ErrCommitRefused, err)
		}
		return nil
	}
	if !isDone && !errors.Is(err, ErrDecided) {
		// The same taskNo may run in a second transaction: roll back only if the barrier excludes any further commit.
		if state, asked := barrier.AnswerCheck(ctx, task.TaskNo, half.CreatedAt); asked == nil && state == rolledBack {
			_, _ = ackbox.call(ctx, "POST", "/tasks/"+url.PathEscape(task.TaskNo)+"/rollback", nil) // else by the check
		}
		return err
	}
	status := ackbox.asked(ctx, task.TaskNo)
	if !isDone || status == "CANCELLED" {
		return err
	}
	if status == "" || status == "PREPARED" {
		return fmt.Errorf("%w (%v)", ErrUnclear, err)
	}
	return nil
}

// True: Ackbox itself refuses this request for good. An answer without a code is that of a proxy.
func isRefusal(err error) bool {
	var refused *Refused
	if !errors.As(err, &refused) || refused.Code == "" || refused.Status >= 500 {
		return false
	}
	switch refused.Status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return true
}

func (a Ackbox) prepare(ctx context.Context, task Task) (TaskAnswer, error) {
	return a.call(ctx, "POST", "/tasks", map[string]any{
		"taskNo": task.TaskNo, "messageCode": task.MessageCode, "messageBody": task.Body, "prepared": true,
	})
}

// Retries without an answer: a repeated commit has no further effect.
func (a Ackbox) commit(ctx context.Context, taskNo string) error {
	for tries := 1; ; tries++ {
		_, err := a.call(ctx, "POST", "/tasks/"+url.PathEscape(taskNo)+"/commit", nil)
		if tries == 3 || err == nil || isRefusal(err) {
			return err
		}
		time.Sleep(time.Duration(tries) * 200 * time.Millisecond)
	}
}

// Requests a check and returns the status of the half message; empty if that is not possible now.
func (a Ackbox) asked(ctx context.Context, taskNo string) string {
	task, err := a.call(ctx, "POST", "/tasks/"+url.PathEscape(taskNo)+"/check", nil)
	var refused *Refused
	if errors.As(err, &refused) && (refused.Code == "TASK_COMMITTED" || refused.Code == "TASK_ROLLED_BACK") {
		task, err = a.call(ctx, "GET", "/tasks/"+url.PathEscape(taskNo), nil) // it was decided in the meantime
	}
	if err != nil {
		return ""
	}
	return task.Status
}

func (a Ackbox) call(ctx context.Context, method, path string, body any) (task TaskAnswer, err error) {
	var text []byte
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			return task, err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, a.URL+path, bytes.NewReader(text))
	if err != nil {
		return task, err
	}
	if body != nil {
		request.Header.Set("content-type", "application/json")
	}
	if a.Key != "" {
		request.Header.Set("authorization", "Bearer "+a.Key)
	}
	answer, err := a.Client.Do(request)
	if err != nil {
		return task, err
	}
	defer answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		refused := &Refused{Status: answer.StatusCode}
		_ = json.NewDecoder(answer.Body).Decode(refused)
		return task, refused
	}
	err = json.NewDecoder(answer.Body).Decode(&task)
	return task, err
}
