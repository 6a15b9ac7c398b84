package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// A shop with half messages: POST /pay/TASK_NO pays an order; with ?card=refused it is refused after its account was charged. Ackbox checks
// at POST /check. DSN ACKBOX_URL ACKBOX_KEY CHECK_SECRET PORT. In production it calls Prune once a day.
func serveHalf(dialect string) {
	db, err := sql.Open(dialect, os.Getenv("DSN"))
	if err != nil {
		log.Fatal(err)
	}
	barrier := Barrier{DB: db, IsPostgres: dialect == "postgres"}
	ackbox := Ackbox{
		URL: os.Getenv("ACKBOX_URL"), Key: os.Getenv("ACKBOX_KEY"), Client: &http.Client{Timeout: 15 * time.Second},
	}
	// npx ackbox key secret check:order.paid
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(os.Getenv("CHECK_SECRET"), "whsec_"))
	if err != nil || len(key) < 24 {
		log.Fatal("CHECK_SECRET must be whsec_ and base64 of 24 bytes or more")
	}
	http.HandleFunc("/pay/", func(w http.ResponseWriter, r *http.Request) {
		task := Task{
			TaskNo: strings.TrimPrefix(r.URL.Path, "/pay/"), MessageCode: "order.paid", Body: map[string]int{"total": 7},
		}
		err := HalfMessage(r.Context(), ackbox, barrier, task, func(tx *sql.Tx) error {
			return pay(r.Context(), tx, r.URL.Query().Get("card") != "refused")
		})
		switch {
		case err == nil:
			fmt.Fprint(w, "paid")
		case errors.Is(err, ErrDecided) || errors.Is(err, ErrUnclear):
			http.Error(w, err.Error(), http.StatusConflict)
		default:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	http.HandleFunc("/check", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil || !verify(key, r.Header, body) {
			http.Error(w, "", http.StatusUnauthorized)
			return
		}
		var check struct {
			TaskNo     string
			PreparedAt time.Time
		}
		if err := json.Unmarshal(body, &check); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		state, err := barrier.AnswerCheck(r.Context(), check.TaskNo, check.PreparedAt)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable) // no answer: Ackbox checks again
			return
		}
		fmt.Fprintf(w, `{"state":"%s"}`, state)
	})
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Getenv("PORT"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("listening", listener.Addr().(*net.TCPAddr).Port)
	server := http.Server{ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(server.Serve(listener))
}

func pay(ctx context.Context, tx *sql.Tx, isCardGood bool) error {
	if _, err := tx.ExecContext(ctx, `update account set balance = balance - 7 where id = 1`); err != nil {
		return err
	}
	if !isCardGood {
		return errors.New("the card was refused")
	}
	return nil
}

var (
	idForm   = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	timeForm = regexp.MustCompile(`^[0-9]{1,12}$`)
)

// Standard Webhooks: HMAC-SHA256 over id.timestamp.body, byte for byte. One matching signature is enough.
func verify(key []byte, header http.Header, body []byte) bool {
	id, timestamp := header.Get("webhook-id"), header.Get("webhook-timestamp")
	// With a dot in the id, the id could hold the time, and the time a part of the body.
	if !idForm.MatchString(id) || !timeForm.MatchString(timestamp) {
		return false
	}
	at, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || time.Since(time.Unix(at, 0)).Abs() > 5*time.Minute {
		return false
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	right := []byte("v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	for _, given := range strings.Split(header.Get("webhook-signature"), " ") {
		if hmac.Equal([]byte(given), right) {
			return true
		}
	}
	return false
}
