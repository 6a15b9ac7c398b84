# Handles the message of a queue twice, then messages that it must refuse. Usage: python3 once.py '{"url":…,"secret":…,"headers":{…},"body":…}'
import contextlib
import io
import json
import os
import sys
import threading
import time
from datetime import datetime, timedelta, timezone
from urllib.parse import urlparse

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../../examples/receivers/python"))
from ackbox_receiver import Receiver  # noqa: E402

given = json.loads(sys.argv[1])
headers, body = dict(given["headers"]), given["body"].encode()
DIALECT = "postgres" if given["url"].startswith("postgres") else "mysql"


def connect(autocommit=False):
    if DIALECT == "postgres":
        import psycopg

        return psycopg.connect(given["url"], autocommit=autocommit)
    import pymysql

    at = urlparse(given["url"])
    return pymysql.connect(
        host=at.hostname, port=at.port, user=at.username, password=at.password or "", database=at.path[1:], autocommit=autocommit
    )


points = Receiver(connect, DIALECT, "points", [given["secret"]], "http://127.0.0.1:1")


def grant(cursor, task):
    cursor.execute("update points set granted = granted + 7 where id = 1")
    return {"for": task.task_no}


def tell(cursor, task):
    print(task.message_code, task.scene_type, task.attempt, task.round, task.text, task.body["points"], task.webhook_id == headers["webhook-id"])


def fail(cursor, task):
    raise OSError("the warehouse is away")


def take(connection, work, body=body):
    try:
        first, result = points.once(connection.cursor(), headers, body, work)
        print(first, result)
    except Exception as error:
        print(type(error).__name__)
    connection.commit()


class SlowToClose:
    """A connection whose close ends after the deadline."""

    def __init__(self):
        self.connection = connect()

    def __getattr__(self, name):
        return getattr(self.connection, name)

    def close(self):
        time.sleep(10)
        self.connection.close()


def ended(cursor, task):
    cursor.execute("rollback")  # as the server does at a deadlock, whose error this work ignores


def deadlocked(cursor, task):
    raise ValueError("as a library wraps it") from RuntimeError(1213, "Deadlock found")


def changed(cursor, task):
    raise RuntimeError(1020, "Record has changed since last read in table 'points'")


for work, opening, deadline_s in (ended, connect, 60), (deadlocked, connect, 60), (changed, connect, 60), (fail, SlowToClose, 5):
    failing = Receiver(opening, DIALECT, "points", [given["secret"]], "http://127.0.0.1:1", deadline_s=deadline_s)
    print(failing.answer(headers, body, work)[0])

take(connect(autocommit=True), grant)
connection = connect()
young = Receiver(connect, DIALECT, "young", [given["secret"]], "http://127.0.0.1:1", max_age_s=-1)
try:
    young.once(connection.cursor(), headers, body, grant)
except Exception as error:
    print(type(error).__name__, error)
Receiver(connect, DIALECT, "told", [given["secret"]], "http://127.0.0.1:1", max_age_s=60).once(connection.cursor(), headers, body, tell, lambda: False)
connection.rollback()
take(connection, fail)
take(connection, grant)
take(connection, grant)
take(connection, grant, body + b" ")
headers["ackbox-forget-after"] = (datetime.now(timezone.utc) - timedelta(hours=13)).isoformat()
take(connection, grant)

for secrets in [], [""], ["whsec_"], ["whsec_c2hvcnQ="], [given["secret"] + "?"], [None]:
    try:
        Receiver(connect, DIALECT, "points", secrets, "http://127.0.0.1:1")
        print("taken", secrets)
    except ValueError as error:
        if any(secret and secret[6:] in str(error) for secret in secrets if secret != "whsec_"):
            print("named", secrets)

# A timestamp that is too long for a number, and a database that is not reachable.
print(points.answer({**given["headers"], "webhook-timestamp": "9" * 5_000}, body, grant)[0])
points.connect = lambda: 1 / 0
print(points.answer(given["headers"], body, grant)[0])


class Stop:
    """The Event of `run`, set after 100 failures. It keeps the pauses."""

    def __init__(self):
        self.pauses = []

    def wait(self, pause_s):
        self.pauses.append(pause_s)
        return self.is_set()

    def is_set(self):
        return len(self.pauses) > 100


told = io.StringIO()
stop = Stop()
with contextlib.redirect_stdout(told):
    points.run(stop)
print(told.getvalue().count("ZeroDivisionError"), stop.pauses[:3], max(stop.pauses))

# More receipts are due when `run` is told to stop.
stop, sent = threading.Event(), []


def send():
    sent.append(stop.set())
    return len(sent) < 10


points._send_due = send
points.run(stop)
print("sent", len(sent))


class Pool:
    """A pool of one connection, with the methods of psycopg_pool."""

    def __init__(self):
        self.free = [connect()]

    def getconn(self):
        return self.free.pop()

    def putconn(self, connection):
        self.free.append(connection)


pool = Pool()
pooled = Receiver(pool.getconn, DIALECT, "points", [given["secret"]], "http://127.0.0.1:1", release=pool.putconn)
print(pooled.answer(given["headers"], body, grant)[0])
pooled._send_due()
connection.cursor().execute("update ackbox_receipt_outbox set next_try_at = '2099-01-01'")
connection.cursor().execute("update ackbox_received set forget_after = '2026-01-01'")
connection.cursor().execute(
    "insert into ackbox_receipt_outbox (consumer, callback_url, callback_token, receipt, created_at) values ('points', '', '', '{}', '2026-01-01')"
)
connection.commit()


class Raced:
    """A connection, and a cursor of it: after a read of several rows, `meanwhile` runs in another process."""

    def __init__(self, inner, meanwhile):
        self.inner, self.meanwhile = inner, meanwhile

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def cursor(self):
        return Raced(self.inner.cursor(), self.meanwhile)

    def fetchall(self):
        rows = self.inner.fetchall()
        self.meanwhile()
        return rows


def strict(meanwhile):
    """As MariaDB is since 11.6.2: a row that has changed since the transaction began to read is an error."""
    made = connect()
    with contextlib.suppress(Exception):
        made.cursor().execute("set session innodb_snapshot_isolation = on")
    made.rollback()
    return Raced(made, meanwhile)


others = Receiver(connect, DIALECT, "points", [given["secret"]], "http://127.0.0.1:1")
raced = Receiver(lambda: strict(others._claim), DIALECT, "points", [given["secret"]], "http://127.0.0.1:1")
raced._claim()
raced.connect = lambda: strict(others.prune)
raced.prune()
print("two at the same time")


def conflicting():
    raise RuntimeError(1213, "Deadlock found")


raced.connect = conflicting
print(raced._claim())
pooled.prune()
print("in the pool", len(pool.free))
pool.free[0].cursor().execute("select 1")
