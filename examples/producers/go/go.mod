module ackbox.example/producer

go 1.19

require (
	github.com/go-sql-driver/mysql v1.7.1
	github.com/lib/pq v1.10.9
)
