# A receiver that grants points once: DATABASE_URL SIGNING_SECRET ACKBOX_URL PORT python3 points.py
# In production: a pool, such as that of psycopg_pool, and `points.prune()` once a day:
#   pool = ConnectionPool(DATABASE_URL, open=True)
#   points = Receiver(pool.getconn, …, release=pool.putconn)
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlparse

from ackbox_receiver import Receiver, Refuse, Retry

DATABASE_URL = os.environ["DATABASE_URL"]
MAX_BYTES = 1_048_576
DIALECT = "postgres" if DATABASE_URL.startswith("postgres") else "mysql"


def connect():
    if DIALECT == "postgres":
        import psycopg

        # Without a limit, a statement to a database that vanished is waited for until TCP gives up.
        return psycopg.connect(DATABASE_URL, keepalives_idle=10, tcp_user_timeout=60_000)
    import pymysql

    at = urlparse(DATABASE_URL)
    return pymysql.connect(host=at.hostname, port=at.port, user=at.username, password=at.password or "", database=at.path[1:], read_timeout=60)


def grant(cursor, task):
    body = task.body
    if body.get("closed"):
        raise Refuse("the account is closed")
    if body.get("later"):
        raise Retry(7)
    cursor.execute("update points set granted = granted + %s where id = 1", (body["points"],))
    time.sleep(body.get("seconds", 0))
    return {"granted": body["points"]}


points = Receiver(
    connect, DIALECT, "points", [os.environ["SIGNING_SECRET"]], os.environ["ACKBOX_URL"],
    deadline_s=float(os.environ.get("DEADLINE_SECONDS", "8")),
)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        size = int(self.headers.get("content-length", "0"))
        if not 0 <= size <= MAX_BYTES:
            self.close_connection = True
            return self.send_error(413)
        status, headers, text = points.answer(self.headers, self.rfile.read(size), grant)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    do_GET = do_POST  # a probe, unless its handler says POST

    def log_message(self, format, *args):
        pass


sys.stdout.reconfigure(encoding="utf-8")
threading.Thread(target=points.run, args=[threading.Event()], daemon=True).start()
server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8080"))), Handler)
print("listening", server.server_address[1], flush=True)
server.serve_forever()
